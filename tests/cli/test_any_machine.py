"""Windows and macOS, as far as Linux can show it: modules, functions and signals that only POSIX has are taken away from the package."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import primus_mcp

PACKAGE = Path(primus_mcp.__file__).parent
POSIX_MODULES = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty")
OPTIONAL = ("dspy", "torch", "origami", "litellm")
"""Packages that a core installation lacks: modules that need them at the top may fail to import for that reason only."""

_WITHOUT_POSIX = """
import builtins, os, signal, sys
plain = builtins.__import__
def without(name, globals=None, locals=None, fromlist=(), level=0):
    if name.split(".")[0] in {modules!r} and str((globals or {{}}).get("__name__", "")).startswith("primus_mcp"):
        raise ModuleNotFoundError(f"No module named {{name!r}} (taken away from primus_mcp)")
    return plain(name, globals, locals, fromlist, level)
builtins.__import__ = without
for name in ("fork", "forkpty", "setsid", "killpg", "getpgid", "getuid", "geteuid", "getgid", "chown", "mkfifo", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "alarm", "setitimer", "pause", "sigwait"):
    if hasattr(signal, name):
        delattr(signal, name)
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = _WITHOUT_POSIX.format(modules=POSIX_MODULES) + code
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1", **environment}, timeout=300
    )


def test_every_module_imports_without_posix() -> None:
    code = f"""
import importlib, pkgutil, primus_mcp
failed = []
for module in pkgutil.walk_packages(primus_mcp.__path__, "primus_mcp."):
    if module.name == "primus_mcp.__main__":
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in {OPTIONAL!r}:
            failed.append((module.name, str(error)))
print(failed)
"""
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_a_whole_search_runs_without_posix(tmp_path: Path) -> None:
    arguments = ["tune", "--model", "llama3_8B", "--gpu", "mi300x", "--seed-only", "--seed-budget", "2", "--gemm-backend", "roofline"]
    code = f"from primus_mcp.cli.main import main\nraise SystemExit(main({[*arguments, '--out-dir', str(tmp_path / 'run')]!r}))"
    done = run(code)
    assert done.returncode == 0, done.stderr
    assert "BEST CONFIGURATION" in done.stdout
    assert {"trials.jsonl", "summary.json", "trials.png"} <= {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize("encoding", ["cp1252", "cp950", "ascii"])
def test_a_console_that_cannot_show_every_character_loses_the_character_not_the_run(tmp_path: Path, encoding: str) -> None:
    code = f"""
from primus_mcp.cli.main import main
raise SystemExit(main(["tune", "--model", "llama3_8B", "--gpu", "mi300x", "--seed-only", "--seed-budget", "1", "--gemm-backend", "roofline",
    "--out-dir", {str(tmp_path / "größe→")!r}]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": encoding}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert b"BEST CONFIGURATION" in done.stdout


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_text_files_are_opened_as_utf8_and_posix_modules_are_not_imported_at_the_top(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    top = [name for node in tree.body if isinstance(node, ast.Import) for name in (alias.name for alias in node.names)]
    top += [node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert not set(POSIX_MODULES) & {name.split(".")[0] for name in top}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in {"read_text", "write_text"}):
            continue
        assert any(keyword.arg == "encoding" for keyword in node.keywords), f"line {node.lineno}"
