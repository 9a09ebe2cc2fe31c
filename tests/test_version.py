"""The engine's digest covers whatever decides a number."""

from __future__ import annotations

import json
import re
import subprocess
import sys

from primus_mcp.version import PACKAGE_VERSION, PRICING_ROOMS, engine_version

WITHOUT_NUMBERS = {"errors", "version"}


def test_the_version_is_the_packages_with_a_digest() -> None:
    assert re.fullmatch(re.escape(PACKAGE_VERSION) + r"\+[0-9a-f]{12}", engine_version())


def test_every_module_that_pricing_loads_is_in_the_digest() -> None:
    code = "import json, sys, primus_mcp.evaluation.measured; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    rooms = {name.split(".")[1] for name in loaded if name.startswith("primus_mcp.")}
    assert rooms - WITHOUT_NUMBERS <= {*PRICING_ROOMS, "units"}
    assert "measurement" in rooms
