"""Runs in a process of its own: charts as JSON on stdin to drawings as JSON on stdout.

vl-convert holds Python's lock while it draws, keeps V8 with its threads and 100 MB for good, hangs in a fork of a process that has used it,
and ends its process where memory runs out: none of that may happen to a server that answers others, or to a search.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def drawing(job: dict[str, Any]) -> dict[str, str]:
    """{"svg": ...} and, where the job has a `scale`, {"png": base64}; {"error": one line} where the library refuses."""
    import vl_convert

    try:
        svg = vl_convert.vegalite_to_svg(job["spec"], allowed_base_urls=[])
        if job["scale"] is None:
            return {"svg": svg}
        return {"svg": svg, "png": b64encode(packed(vl_convert.svg_to_png(svg, scale=job["scale"]))).decode("ascii")}
    except (ValueError, RuntimeError) as error:
        said = str(error).split("\n    at ")[0].split("\nStack backtrace")[0]
        return {"error": " ".join(said.split())}


def packed(png: bytes) -> bytes:
    """The same picture in a third of the bytes or less: the library compresses for speed (PNG specification, 5 and 10)."""
    pixels = zlib.compress(zlib.decompress(b"".join(data for kind, data in _chunks(png) if kind == b"IDAT")), 6)
    others = [(kind, data) for kind, data in _chunks(png) if kind != b"IDAT"]
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in (*others[:-1], (b"IDAT", pixels), others[-1])
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    place = len(_SIGNATURE)
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += length + 12


def main() -> int:
    """All jobs of stdin."""
    jobs = json.load(sys.stdin.buffer)
    sys.stdout.write(json.dumps([drawing(job) for job in jobs]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
