"""Runs in a process of its own: charts as JSON on stdin to drawings as JSON on stdout.

vl-convert holds Python's lock while it draws, keeps V8 with its threads and 100 MB for good, hangs in a fork of a process that has used it,
and ends its process where memory runs out: none of that may happen to a server that answers others, or to a search.
"""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from typing import Any


def drawing(job: dict[str, Any]) -> dict[str, str]:
    """{"svg": ...} and, where the job has a `scale`, {"png": base64}; {"error": one line} where the library refuses."""
    import vl_convert

    try:
        svg = vl_convert.vegalite_to_svg(job["spec"], allowed_base_urls=[])
        if job["scale"] is None:
            return {"svg": svg}
        return {"svg": svg, "png": b64encode(vl_convert.svg_to_png(svg, scale=job["scale"])).decode("ascii")}
    except (ValueError, RuntimeError) as error:
        said = str(error).split("\n    at ")[0].split("\nStack backtrace")[0]
        return {"error": " ".join(said.split())}


def main() -> int:
    """All jobs of stdin."""
    jobs = json.load(sys.stdin.buffer)
    sys.stdout.write(json.dumps([drawing(job) for job in jobs]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
