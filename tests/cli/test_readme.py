"""What README.md shows is what the program prints."""

from __future__ import annotations

import importlib
import importlib.util
import re
import tomllib
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


def test_the_readme_quotes_the_accuracy_page_in_sample_and_with_the_family_left_out() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    table = script().accuracy_table(page)
    assert table in (ROOT / "README.md").read_text(encoding="utf-8"), "run `make docs`"
    blind = next(line for line in page.splitlines() if "one family at a time" in line and "| amd |" in line)
    assert all(cell in blind for cell in table.splitlines()[2].split("|")[2:5])


def test_install_lines_name_the_project_and_an_entry_point_that_it_has() -> None:
    """A bare `uvx NAME` and `pipx install NAME` need a script of the distribution's own name; `--from .` names the script."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    after = re.findall(r"(?:pipx install|uvx) (primus[\w-]*)", text)
    local = re.findall(r"uvx --from \. ([\w-]+)", text)
    assert after and set(after) == {project["name"]}
    assert local and "pipx install ." in text
    for name in {*after, *local}:
        module, _, function = project["scripts"][name].partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_every_install_line_says_whether_it_works_from_a_clone_or_after_publication() -> None:
    for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines():
        if "pipx " in line or "uvx " in line:
            assert ("from a clone" in line) != ("after publication" in line), line
            assert ("install ." in line or "--from ." in line) == ("from a clone" in line), line


def test_every_file_that_the_readme_points_to_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"(?:docs|examples|tests|scripts)/[\w./-]*\w", text)
    assert len(named) > 8
    for name in named:
        assert (ROOT / name).exists(), name
