"""Which engine produced a number: the package version, and a digest of everything that decides one."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

PACKAGE_VERSION = "0.1.0"
_PACKAGE = Path(__file__).parent
PRICING_ROOMS = ("catalog", "inputs", "space", "projection", "measurement", "evaluation")
_SUFFIXES = frozenset({".py", ".yaml", ".json", ".jsonl"})


@lru_cache(maxsize=1)
def engine_digest() -> str:
    """12 hex digits over the source and data files of `units.py` and of the rooms that price a trial; line endings do not count."""
    digest = sha256()
    inside = (path for room in PRICING_ROOMS for path in sorted((_PACKAGE / room).rglob("*")))
    for path in (_PACKAGE / "units.py", *inside):
        if path.suffix in _SUFFIXES:
            content = path.read_bytes().replace(b"\r\n", b"\n")
            digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + sha256(content).digest())
    return digest.hexdigest()[:12]


def engine_version() -> str:
    """`<package version>+<digest>`: two results with the same text came from the same engine."""
    return f"{PACKAGE_VERSION}+{engine_digest()}"
