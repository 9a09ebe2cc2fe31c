"""What README.md shows is what the program prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("readme_example", ROOT / "scripts" / "readme_example.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_example_in_the_readme_is_what_the_main_job_prints_regression() -> None:
    module = script()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == module.readme_with(module.printed()), "run `make docs`"


def test_the_readme_names_every_command_and_every_exit_code() -> None:
    from primus_mcp.cli.main import COMMANDS

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"primus-mcp {name}" in text or f"`{name}`" in text, name
    for code in ("0 ok", "1 internal error", "2 bad input", "3 nothing legal fits", "4 stopped early"):
        assert code in text
