"""Which files a client may name: only those inside the allowed roots, symbolic links resolved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from primus_mcp.errors import InputError

MAX_PATH_CHARACTERS = 4096


class Fence:
    """Roots, resolved once. A relative path is looked for in each root in turn; the working directory plays no part.

    `everything`: for what the operator named at start, relative to where that was.
    """

    def __init__(self, roots: Sequence[Path], *, everything: bool = False) -> None:
        self._everything = everything
        self.roots = tuple(dict.fromkeys(root.expanduser().resolve() for root in roots))

    def _inside(self, path: Path) -> bool:
        return self._everything or any(path.is_relative_to(root) for root in self.roots)

    def _refused(self, text: str, where: str) -> InputError:
        allowed = ", ".join(str(root) for root in self.roots) or "none"
        return InputError(
            f"{text[:200]!r} is outside the allowed folders ({allowed})",
            where=where,
            remedy="start the server with --root FOLDER to allow more",
        )

    def path(self, text: str, where: str) -> Path:
        """The real path that a client's text names. Raises InputError for one outside; whether it exists is not told."""
        if not text or len(text) > MAX_PATH_CHARACTERS or "\0" in text or "\n" in text:
            raise InputError("is no path", where=where, remedy="give a file inside an allowed folder")
        try:
            given = Path(text).expanduser()
            if given.is_absolute():
                candidates = [given.resolve()]
            elif self._everything:
                candidates = [Path.cwd() / given]
            elif given.drive or given.root:
                candidates = []
            else:
                candidates = [(root / given).resolve() for root in self.roots]
        except (OSError, RuntimeError, ValueError):
            raise self._refused(text, where) from None
        inside = [candidate for candidate in candidates if self._inside(candidate)]
        if not inside:
            raise self._refused(text, where)
        return next((candidate for candidate in inside if candidate.exists()), inside[0])

    def require(self, path: Path, where: str) -> Path:
        """A path that was found by other means, if it is inside."""
        real = path.resolve()
        if not self._inside(real):
            raise self._refused(str(path), where)
        return real
