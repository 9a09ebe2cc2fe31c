"""The tables that nvidia-smi, amd-smi and rocm-smi print when nothing is asked of them: read where they say enough, else refused.

Source of the form: NVIDIA's nvidia-smi manual (three lines a GPU, then the processes); older drivers cut long names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from primus_mcp.errors import InputError
from primus_mcp.inputs.detect_records import SeenGpu, ToolOutput, plain

NVIDIA_COMMAND = "nvidia-smi --query-gpu=name,memory.total --format=csv"
COMMANDS: Mapping[str, str] = {"amd-smi": "amd-smi static --json", "rocm-smi": "rocm-smi --showproductname --showmeminfo vram --json"}
_NVIDIA = re.compile(r"^\| NVIDIA-SMI ", re.MULTILINE)
_GAP, _CELL = "[ ]{0,99}", r"[^|\n]{0,99}"
"""Cells are short; without a bound a hostile line would take the square of its length."""
_NVIDIA_NAME = (
    rf"^\|{_GAP}\d+{_GAP}[ ](\S{_CELL}?)[ ](?:On|Off|N/A){_GAP}\|{_CELL}[0-9A-F]:[0-9A-F]{{2}}\.[0-9A-F]{_CELL}\|{_CELL}\|{_GAP}$"
)
_NVIDIA_MEMORY = rf"\n\|{_CELL}\|{_GAP}\d+MiB{_GAP}/{_GAP}(\d{{1,9}})MiB{_GAP}\|{_CELL}\|{_GAP}"
_NVIDIA_MIG = rf"(?:\n\|{_GAP}\|{_GAP}\|{_GAP}(Enabled|Disabled)\*?{_GAP}\|)?"
_HEAD = re.compile(_NVIDIA_NAME, re.MULTILINE | re.IGNORECASE)
_GPU = re.compile(_NVIDIA_NAME + _NVIDIA_MEMORY + _NVIDIA_MIG, re.MULTILINE | re.IGNORECASE)
_BARE = {
    "amd-smi": re.compile(r"^\|[ ]*AMD-SMI ", re.MULTILINE),
    "rocm-smi": re.compile(r"ROCm System Management Interface|^=+ Concise Info =+$", re.MULTILINE),
}


def _nvidia(text: str, where: str) -> ToolOutput:
    rows = _GPU.findall(text)
    problem = None
    if not rows or len(rows) != len(_HEAD.findall(text)) or "Processes:" not in text:
        problem = "is a table of nvidia-smi that is not whole"
    elif cut := next((name for name, _, _ in rows if name.strip().endswith("...")), None):
        problem = f"is a table of nvidia-smi that cuts the name {plain(cut)!r}"
    if problem is not None:
        raise InputError(problem, where=where, remedy=f"save the output of `{NVIDIA_COMMAND}`")
    gpus = tuple(
        SeenGpu(name=plain(name), memory_mib=float(memory), mig=mig.lower() == "enabled" if mig else None) for name, memory, mig in rows
    )
    return ToolOutput(tool="nvidia-smi", where=where, gpus=gpus)


def parse_table(text: str, where: str) -> ToolOutput | None:
    """nvidia-smi's table; None: the text is no such table. Raises InputError that names the command to run instead."""
    if _NVIDIA.search(text):
        return _nvidia(text, where)
    for tool, form in _BARE.items():
        if form.search(text):
            raise InputError(
                f"is a table of {tool}, which does not name every GPU", where=where, remedy=f"save the output of `{COMMANDS[tool]}`"
            )
    return None
