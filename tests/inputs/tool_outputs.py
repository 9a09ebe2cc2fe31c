"""Outputs of vendors' tools in their documented forms, for any number of GPUs."""

from __future__ import annotations

import json
from typing import Any


def amd_static(
    count: int = 8,
    name: str = "AMD Instinct MI300X",
    memory_mb: int = 196592,
    compute: str = "SPX",
    memory: str = "NPS1",
    *,
    wrapped: bool = False,
) -> str:
    gpus: list[dict[str, Any]] = [
        {
            "gpu": index,
            "asic": {
                "market_name": name,
                "vendor_id": "0x1002",
                "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
                "device_id": "0x74a1",
                "num_compute_units": 304,
                "target_graphics_version": "gfx942",
            },
            "bus": {"bdf": f"0000:{index:02x}:00.0", "max_pcie_width": 16},
            "board": {"product_name": "AMD Instinct MI300 OAM"},
            "partition": {"accelerator_partition": compute, "memory_partition": memory, "partition_id": 0},
            "vram": {"type": "HBM3", "vendor": "N/A", "size": {"value": memory_mb, "unit": "MB"}},
        }
        for index in range(count)
    ]
    return json.dumps({"gpu_data": gpus} if wrapped else gpus, indent=4)


def amd_static_text(count: int = 8, name: str = "AMD Instinct MI355X", memory_mb: int = 294896) -> str:
    return "\n".join(
        f"""GPU: {index}
    ASIC:
        MARKET_NAME: {name}
        VENDOR_ID: 0x1002
        DEVICE_ID: 0x75a3
        NUM_COMPUTE_UNITS: 256
    BUS:
        BDF: 0000:{index:02x}:00.0
    VRAM:
        TYPE: HBM3E
        SIZE: {memory_mb} MB
    PARTITION:
        COMPUTE_PARTITION: SPX
        MEMORY_PARTITION: NPS1
        PARTITION_ID: 0
"""
        for index in range(count)
    )


def amd_list(count: int = 8, partition: int = 0) -> str:
    return "\n".join(
        f"GPU: {index}\n    BDF: 0000:{index:02x}:00.0\n    UUID: x\n    KFD_ID: 1\n    NODE_ID: 2\n    PARTITION_ID: {partition}\n"
        for index in range(count)
    )


def amd_topology(count: int = 8, kind: str = "XGMI") -> str:
    rows = [
        {
            "gpu": index,
            "bdf": f"0000:{index:02x}:00.0",
            "links": [
                {"gpu": other, "weight": 15, "link_status": "ENABLED", "link_type": "SELF" if other == index else kind, "num_hops": 1}
                for other in range(count)
            ],
        }
        for index in range(count)
    ]
    return json.dumps(rows)


def amd_topology_text(count: int = 4, kind: str = "XGMI") -> str:
    names = [f"0000:{index:02x}:00.0" for index in range(count)]
    rows = [f"{name} " + " ".join("SELF" if index == other else kind for other in range(count)) for index, name in enumerate(names)]
    return "ACCESS TABLE:\n x\n\nLINK TYPE TABLE:\n  " + " ".join(names) + "\n" + "\n".join(rows) + "\n\nNUMA BW TABLE:\n"


def rocm(count: int = 8, series: str = "AMD Instinct MI300X OAM", total: int = 206141652992) -> str:
    cards = {
        f"card{index}": {
            "VRAM Total Memory (B)": str(total),
            "VRAM Total Used Memory (B)": "283701248",
            "Card Series": series,
            "Card Model": "0x74a1",
            "Card Vendor": "Advanced Micro Devices, Inc. [AMD/ATI]",
            "GFX Version": "gfx942",
        }
        for index in range(count)
    }
    return json.dumps(cards)


def rocm_text(count: int = 8, series: str = "AMD Instinct MI300X OAM", total: int = 206141652992) -> str:
    facts = {"Card Series": series, "Card Model": "0x74a1", "VRAM Total Memory (B)": str(total), "Compute Partition": "SPX"}
    lines = [f"GPU[{index}]\t\t: {key}: \t\t{value}" for index in range(count) for key, value in facts.items()]
    return "\n".join(["", *lines, ""])


def nvidia_xml(
    count: int = 8, name: str = "NVIDIA H100 80GB HBM3", memory: str = "81559 MiB", mig: str = "Disabled", attached: int | None = None
) -> str:
    gpus = "".join(
        f"""<gpu id="00000000:{index:02x}:00.0"><product_name>{name}</product_name>
<mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode>
<fb_memory_usage><total>{memory}</total><used>1 MiB</used></fb_memory_usage>
<bar1_memory_usage><total>131072 MiB</total></bar1_memory_usage></gpu>"""
        for index in range(count)
    )
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n'
    said = count if attached is None else attached
    return f"{head}<nvidia_smi_log><attached_gpus>{said}</attached_gpus>{gpus}</nvidia_smi_log>\n"


def nvidia_csv(count: int = 8, name: str = "NVIDIA H200", memory: str = "143771 MiB") -> str:
    return "index, name, memory.total [MiB]\n" + "".join(f"{index}, {name}, {memory}\n" for index in range(count))


def nvidia_table(count: int = 8, name: str = "NVIDIA H100 80GB HBM3", memory: str = "81559MiB", mig: str = "Disabled") -> str:
    line = "+-----------------------------------------+------------------------+----------------------+\n"
    gpus = "".join(
        f"| {index:>3}  {name:<27} {'On':>6}  |   00000000:{index + 16:02X}:00.0 Off |                    0 |\n"
        f"| N/A   33C    P0             70W /  700W | {'1MiB / ' + memory:>22} |      0%      Default |\n"
        f"|                                         |                        | {mig:>20} |\n{line}"
        for index in range(count)
    )
    head = (
        "Sun Nov 29 21:10:53 2026       \n+-----------------------------------------------------------------------------------------+\n"
        "| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |\n"
        "|-----------------------------------------+------------------------+----------------------+\n"
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
        "|                                         |                        |               MIG M. |\n"
        "|=========================================+========================+======================|\n"
    )
    return f"{head}{gpus}\n| Processes:                                                                              |\n"


RDMA = "".join(f"link mlx5_{index}/1 state ACTIVE physical_state LINK_UP netdev ens{index}\n" for index in range(8)) + (
    "link mlx5_8/1 state DOWN physical_state DISABLED netdev ens8\n"
)
DEVINFO = "".join(
    f"hca_id:\tmlx5_{index}\n\ttransport:\tInfiniBand (0)\n\t\tport:\t1\n\t\t\tstate:\t\t{state}\n"
    for index, state in enumerate(["PORT_ACTIVE (4)", "PORT_ACTIVE (4)", "PORT_DOWN (1)"])
)
LSPCI = (
    "05:00.0 Processing accelerators: Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X]\n"
    "06:00.0 Ethernet controller: Broadcom Inc. and subsidiaries BCM57608 10Gb/25Gb/50Gb/100Gb/200Gb/400Gb Ethernet (rev 11)\n"
    "07:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
    "08:00.0 Host bridge: Intel Corporation Device 09a2\n"
)
