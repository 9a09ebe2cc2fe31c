"""Outputs of amd-smi, rocm-smi, nvidia-smi, lspci, ibv_devinfo and rdma, recognised by their form. Pure; hostile text is data.

Sources of the forms: rocm.docs.amd.com AMD SMI CLI and ROCm SMI pages, NVIDIA's nvidia-smi manual, iproute2's rdma-link(8).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from primus_mcp.errors import InputError
from primus_mcp.inputs.detect_records import SeenGpu, SeenNic, ToolOutput, plain
from primus_mcp.inputs.detect_tables import parse_table
from primus_mcp.inputs.yaml_loader import parse_json

MAX_GPUS = 4096
_UNITS = {"B": 2**-20, "KB": 2**-10, "KIB": 2**-10, "MB": 1.0, "MIB": 1.0, "GB": 1024.0, "GIB": 1024.0}
"""Factors to MiB: these tools write MB and GB for powers of two."""
_SIZE = re.compile(r"([\d.]+)\s*([A-Za-z]+)?")
_CARD = re.compile(r"card\d+")
_BLOCK = re.compile(r"^GPU: (\d+)[ \t]*$", re.MULTILINE)
_PAIR = re.compile(r"^\s*([A-Z_ ]+): (.*)$", re.MULTILINE)
_ROCM_LINE = re.compile(r"^GPU\[(\d+)\]\s*:\s*([^:\n]+):\s*(.*)$", re.MULTILINE)
_LIST_LINE = re.compile(r"^GPU (\d+): (.+?) \(UUID: .*\)\s*$", re.MULTILINE)
_RDMA = re.compile(r"^(?:\d+: )?link (\S+) state (\S+)", re.MULTILINE)
_HCA = re.compile(r"^hca_id:\s*(\S+)", re.MULTILINE)
_PCI_LINE = re.compile(
    r"^(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]\s+([^:\n]+?)(?: \[\w{4}\])?: (.+)$", re.MULTILINE | re.IGNORECASE
)
_INSTINCT = re.compile(r"Instinct (MI\d+[A-Z]*)\b(?!\s*/)")
FORMS = (
    "amd-smi static, list or topology (also --json), rocm-smi --json, nvidia-smi, nvidia-smi -q -x, -L or --query-gpu --format=csv, "
    "lspci, ibv_devinfo, rdma link"
)


def _text(value: object) -> str | None:
    """A value that says something."""
    text = plain(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    return None if text.upper() in ("", "N/A", "NA", "NONE", "UNKNOWN", "[N/A]", "[NOT SUPPORTED]") else text


def _mib(value: object) -> float | None:
    """`{value: 196592, unit: MB}`, "196592 MB", "81559 MiB" to MiB; a bare number is none."""
    if isinstance(value, Mapping):
        value = f"{value.get('value')} {value.get('unit')}"
    match = _SIZE.fullmatch(_text(value) or "")
    factor = _UNITS.get((match[2] or "").upper()) if match else None
    try:
        return float(match[1]) * factor if match and factor is not None else None
    except ValueError:
        return None


def _whole(value: object) -> int | None:
    text = _text(value) or ""
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _amd_gpu(fields: Mapping[str, Any]) -> SeenGpu:
    """One GPU of amd-smi, keys in lower case, blocks flattened."""
    return SeenGpu(
        name=_text(fields.get("market_name")) or _text(fields.get("product_name")),
        pci_device=_text(fields.get("device_id")),
        memory_mib=_mib(fields.get("size")),
        compute_partition=_text(fields.get("accelerator_partition")) or _text(fields.get("compute_partition")),
        memory_partition=_text(fields.get("memory_partition")),
        partition_id=_whole(fields.get("partition_id")),
    )


def _flat(entry: Mapping[str, Any]) -> dict[str, Any]:
    """amd-smi's blocks asic, board, vram and partition in one mapping; `size` is that of vram."""
    fields = {key: value for key, value in entry.items() if not isinstance(value, Mapping)}
    for block in ("board", "partition", "asic", "vram"):
        inner = entry.get(block)
        if isinstance(inner, Mapping):
            fields |= {key: value for key, value in inner.items() if key != "size" or block == "vram"}
    return fields


def _amd_json(entries: Sequence[Any], where: str) -> ToolOutput:
    rows = [entry for entry in entries if isinstance(entry, Mapping) and "gpu" in entry]
    if any("links" in row for row in rows):
        links = [link for row in rows for link in _links(row)]
        return ToolOutput(tool="amd-smi topology --json", where=where, links=tuple(links))
    tool = "amd-smi static --json" if any("asic" in row or "vram" in row for row in rows) else "amd-smi list --json"
    return ToolOutput(tool=tool, where=where, gpus=tuple(_amd_gpu(_flat(row)) for row in rows))


def _links(row: Mapping[str, Any]) -> Iterator[str]:
    links = row["links"] if isinstance(row.get("links"), list) else []
    for link in links:
        if isinstance(link, Mapping) and link.get("gpu") != row.get("gpu"):
            yield (_text(link.get("link_type")) or "unknown").upper()


def _rocm_gpu(fields: Mapping[str, Any]) -> SeenGpu:
    low = {key.lower().strip(): value for key, value in fields.items()}
    series = _text(low.get("card series")) or _text(low.get("device name"))
    model = _text(low.get("card model"))
    total = _text(low.get("vram total memory (b)"))
    return SeenGpu(
        name=series if series and not series.startswith("0x") else None,
        pci_device=model if model and model.startswith("0x") else _text(low.get("device id")),
        memory_mib=_mib(f"{total} B") if total else None,
        compute_partition=_text(low.get("compute partition")),
        memory_partition=_text(low.get("memory partition")),
        partition_id=_whole(low.get("partition id")),
    )


def _json(text: str, where: str) -> ToolOutput | None:
    """JSON of amd-smi or rocm-smi, after whatever warnings stand before it."""
    start = min((at for at in (text.find("["), text.find("{")) if at >= 0), default=-1)
    if start < 0 or text[:start].strip().startswith("<"):
        return None
    try:
        document = parse_json(f'{{"output": {text[start:]}}}', where)["output"]
    except InputError as error:
        problem = f"is JSON that is cut off or garbled ({plain(error.problem)})"
        raise InputError(problem, where=where, remedy="save the whole output of the tool") from None
    if isinstance(document, Mapping) and isinstance(document.get("gpu_data"), list):
        document = document["gpu_data"]
    if isinstance(document, Mapping):
        cards = [value for key, value in document.items() if _CARD.fullmatch(key) and isinstance(value, Mapping)]
        if cards:
            return ToolOutput(tool="rocm-smi --json", where=where, gpus=tuple(map(_rocm_gpu, cards)))
        document = [document]
    if not isinstance(document, list) or (document and not any(isinstance(item, Mapping) and "gpu" in item for item in document)):
        return None
    return _amd_json(document, where)


def _tag(block: str, tag: str) -> str | None:
    match = re.search(rf"<{tag}>([^<]*)</{tag}>", block)
    return _text(match[1]) if match else None


def _nvidia_xml(text: str, where: str) -> ToolOutput:
    """nvidia-smi -q -x. The blocks are cut out as text: nothing in the file can make a parser fetch or expand anything."""
    if "</nvidia_smi_log>" not in text:
        raise InputError("ends in the middle of the nvidia-smi log", where=where, remedy="save the whole output of nvidia-smi -q -x")
    gpus = []
    for block in re.findall(r"<gpu id=[^>]*>(.*?)</gpu>", text, re.DOTALL):
        memory = re.search(r"<fb_memory_usage>(.*?)</fb_memory_usage>", block, re.DOTALL)
        mig = _tag(block, "current_mig")
        gpus.append(
            SeenGpu(name=_tag(block, "product_name"), memory_mib=_mib(_tag(memory[1], "total")) if memory else None, mig=_is_on(mig))
        )
    attached = _whole(_tag(text, "attached_gpus"))
    if attached is not None and attached != len(gpus):
        raise InputError(f"holds {len(gpus)} of {attached} attached GPUs", where=where, remedy="save the whole output of nvidia-smi -q -x")
    return ToolOutput(tool="nvidia-smi -q -x", where=where, gpus=tuple(gpus))


def _is_on(text: str | None) -> bool | None:
    return None if text is None else text.lower() == "enabled"


def _nvidia_csv(text: str, where: str) -> ToolOutput | None:
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.splitlines()[: MAX_GPUS + 2]) if row]
    header = [cell.partition("[")[0].rstrip() for cell in rows[0]] if rows else []  # memory.total [MiB]
    if "name" not in header and "gpu_name" not in header:
        return None
    gpus = []
    for row in rows[1:]:
        if len(row) != len(header):
            raise InputError(f"line {plain(','.join(row))!r} has {len(row)} of {len(header)} columns", where=where, remedy="save it whole")
        cells = dict(zip(header, row, strict=True))
        memory = cells.get("memory.total")
        memory = f"{memory} MiB" if memory and memory.isdecimal() else memory
        name = _text(cells.get("name") or cells.get("gpu_name"))
        gpus.append(SeenGpu(name=name, memory_mib=_mib(memory), mig=_is_on(_text(cells.get("mig.mode.current")))))
    return ToolOutput(tool="nvidia-smi --query-gpu --format=csv", where=where, gpus=tuple(gpus))


def _amd_text(text: str, where: str) -> ToolOutput:
    blocks = _BLOCK.split(text)[2::2]
    pairs = [{key.strip().lower(): value for key, value in _PAIR.findall(block)} for block in blocks]
    tool = "amd-smi static" if any("market_name" in fields for fields in pairs) else "amd-smi list"
    return ToolOutput(tool=tool, where=where, gpus=tuple(map(_amd_gpu, pairs)))


def _topology_text(text: str, where: str) -> ToolOutput:
    table = text.partition("LINK TYPE TABLE:")[2].split("\n\n")[0]
    rows = [line.split() for line in table.splitlines() if line.strip()][1:]
    links = [cell.upper() for row in rows for cell in row[1:] if cell.upper() != "SELF"]
    return ToolOutput(tool="amd-smi topology", where=where, links=tuple(map(plain, links)))


def _rocm_text(text: str, where: str) -> ToolOutput:
    cards: dict[str, dict[str, str]] = {}
    for index, key, value in _ROCM_LINE.findall(text):
        cards.setdefault(index, {})[key.strip()] = value
    return ToolOutput(tool="rocm-smi", where=where, gpus=tuple(map(_rocm_gpu, cards.values())))


def _nvidia_list(text: str, where: str) -> ToolOutput:
    mig = bool(re.search(r"^\s+MIG ", text, re.MULTILINE)) or None
    return ToolOutput(
        tool="nvidia-smi -L", where=where, gpus=tuple(SeenGpu(name=plain(name), mig=mig) for _, name in _LIST_LINE.findall(text))
    )


def _devinfo(text: str, where: str) -> ToolOutput:
    parts = _HCA.split(text)[1:]
    nics = [SeenNic(name=plain(name), active="PORT_ACTIVE" in block) for name, block in zip(parts[::2], parts[1::2], strict=True)]
    return ToolOutput(tool="ibv_devinfo", where=where, nics=tuple(nics))


def _lspci(text: str, where: str) -> ToolOutput:
    found = _PCI_LINE.findall(text)
    network = ("ethernet controller", "infiniband controller", "network controller")
    nics = tuple(SeenNic(name=plain(name)) for kind, name in found if kind.lower().strip() in network)
    gpus = tuple(SeenGpu(name=f"AMD Instinct {match[1]}") for _, name in found if (match := _INSTINCT.search(name)))
    return ToolOutput(tool="lspci", where=where, gpus=gpus or None, nics=nics)


def parse_tool_output(text: str, where: str) -> ToolOutput:
    """One output, whatever tool wrote it. Raises InputError for a form that is not known, and for one that is cut off."""
    text = text.replace("\r\n", "\n")
    if "<nvidia_smi_log>" in text:
        found: ToolOutput | None = _nvidia_xml(text, where)
    elif _RDMA.search(text):
        found = ToolOutput(
            tool="rdma link",
            where=where,
            nics=tuple(SeenNic(name=plain(name), active=state == "ACTIVE") for name, state in _RDMA.findall(text)),
        )
    elif _HCA.search(text):
        found = _devinfo(text, where)
    elif _ROCM_LINE.search(text):
        found = _rocm_text(text, where)
    elif "LINK TYPE TABLE:" in text:
        found = _topology_text(text, where)
    elif _BLOCK.search(text):
        found = _amd_text(text, where)
    elif _LIST_LINE.search(text):
        found = _nvidia_list(text, where)
    elif _PCI_LINE.search(text):
        found = _lspci(text, where)
    else:
        found = parse_table(text, where) or _nvidia_csv(text, where) or _json(text, where)
    if found is None:
        first = plain(next((line for line in text.splitlines() if line.strip()), ""))
        raise InputError(f"is no output that can be read ({first or 'it is empty'})", where=where, remedy=f"give one of {FORMS}")
    if found.gpus is not None and len(found.gpus) > MAX_GPUS:
        raise InputError(f"lists {len(found.gpus):,} GPUs", where=where, remedy="give the output of one host")
    return found
