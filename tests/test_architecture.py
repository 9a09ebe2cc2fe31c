"""The rooms and who may import whom: a package imports only from those above it in the list."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "primus_mcp"
ROOMS = [
    ("errors", "units", "version"),
    ("catalog",),
    ("inputs",),
    ("space",),
    ("projection",),
    ("measurement",),
    ("evaluation",),
    ("validation",),
    ("trials",),
    ("search",),
    ("reports",),
    ("session",),
    ("api",),
    ("tools",),
    ("server", "driver"),
    ("cli",),
    ("__main__", "__init__"),
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
SOURCES = sorted(PACKAGE.rglob("*.py"))


def imported_modules(path: Path) -> list[str]:
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names += [node.module] if node.module != "primus_mcp" else [f"primus_mcp.{alias.name}" for alias in node.names]
    return names


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_room_imports_only_from_rooms_above_it(path: Path) -> None:
    room = room_of(path)
    assert room in LEVEL, f"{room} is not in the list of rooms"
    for name in imported_modules(path):
        parts = name.split(".")
        if parts[0] == "primus_mcp" and len(parts) > 1 and parts[1] != room:
            assert LEVEL[parts[1]] < LEVEL[room], f"{room} imports {name}"


@pytest.mark.parametrize("path", [p for p in SOURCES if room_of(p) == "projection"], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_projection_touches_no_file_clock_process_or_environment(path: Path) -> None:
    forbidden = {"os", "pathlib", "subprocess", "time", "datetime", "random", "socket", "logging", "io", "tempfile", "torch"}
    assert not forbidden & {name.split(".")[0] for name in imported_modules(path)}
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not {"open", "print", "input", "eval", "exec"} & set(calls)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_stay_small_and_nobody_swallows_every_exception(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or node.lineno) - node.lineno < 60, f"{node.name} is too long"
        if isinstance(node, ast.ExceptHandler) and room_of(path) not in {"cli", "server", "driver"}:
            caught = node.type
            assert caught is not None
            assert not (isinstance(caught, ast.Name) and caught.id in {"Exception", "BaseException"})


def test_heavy_libraries_are_imported_where_they_are_used_not_at_the_top_of_a_module() -> None:
    heavy = {"torch", "dspy", "vl_convert", "origami", "litellm"}
    for path in SOURCES:
        if path.parent.name == "worker":  # a program of its own: only child processes import it
            continue
        top = [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [alias.name for node in top if isinstance(node, ast.Import) for alias in node.names]
        names += [node.module or "" for node in top if isinstance(node, ast.ImportFrom)]
        assert not heavy & {name.split(".")[0] for name in names}, path
