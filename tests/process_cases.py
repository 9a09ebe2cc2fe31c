"""Which processes are there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def running(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")
    return not (status.exists() and "\nState:\tZ" in status.read_text(encoding="utf-8"))


def children(of: int) -> set[int]:
    """Direct children of a process."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in listed.splitlines())
    return {int(pid) for pid, parent in pairs if int(parent) == of}
