"""`primus-mcp gpus`: the GPUs that the catalogue knows, with the figures that matter; `--check` validates a GPU file of the user's."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from primus_mcp.cli.streams import print_rich
from primus_mcp.inputs.hardware import GpuProfile
from primus_mcp.inputs.hardware_files import gpu_aliases, gpu_names, gpu_profile
from primus_mcp.units import GB_PER_S, TFLOPS, bytes_to_gb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json, --check."""
    parser.add_argument(
        "--check", type=Path, metavar="YAML", help="check your own GPU file: what it gives, what is taken over, what is missing"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _row(gpu: GpuProfile) -> dict[str, object]:
    profile = gpu.profiles[gpu.default_profile]
    return {
        "name": gpu.name,
        "arch": gpu.arch,
        "usable_hbm_gb": round(bytes_to_gb(gpu.hbm_bytes), 2),
        "nominal_hbm_gb": gpu.hbm_nominal_gb,
        "hbm_bandwidth_gb_per_s": gpu.hbm_bandwidth_bytes_per_s / GB_PER_S,
        "peak_tflops": {name: value / TFLOPS for name, value in gpu.peak_flops.items()},
        "sustained_tflops": {name: value / TFLOPS for name, value in profile.sustained_flops.items()},
        "node_topology": gpu.network.node_topology,
        "profile": profile.name,
        "profiles": sorted(gpu.profiles),
        "aliases": sorted(alias for alias, name in gpu_aliases().items() if name == gpu.name and alias != gpu.name),
    }


def _check(arguments: argparse.Namespace) -> int:
    from primus_mcp.inputs.own_gpu import read_gpu_file

    own = read_gpu_file(arguments.check)
    if arguments.json:
        filled = [{"figure": figure, "rule": rule} for figure, rule in own.filled]
        print(json.dumps({**_row(own.profile), "based_on": own.based_on, "given": list(own.given), "filled": filled}, indent=2))
        return 0
    print(f"{arguments.check}: usable, {len(own.given)} figures given, {len(own.filled)} taken over")
    for figure, rule in own.filled:
        print(f"  {figure}: {rule}")
    sustained = own.profile.profiles[own.profile.default_profile].sustained_flops
    rates = ", ".join(f"{precision} {value / TFLOPS:,.0f}" for precision, value in sustained.items())
    print(f"sustained GEMM rates, TFLOP/s: {rates}; usable HBM {bytes_to_gb(own.profile.hbm_bytes):.2f} GB")
    print(f"use it with --gpu {arguments.check}, or as target_cluster.gpu_arch")
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Print the list, or what is to say of one file."""
    if arguments.check is not None:
        return _check(arguments)
    rows = [_row(gpu_profile(name)) for name in gpu_names()]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("gpu", "arch", "usable HBM", "BF16 peak / sustained", "FP8 peak / sustained", "rates as of", "also called"):
        table.add_column(heading, no_wrap=True)
    for name in gpu_names():
        gpu = gpu_profile(name)
        profile = gpu.profiles[gpu.default_profile]

        def rate(precision: str, gpu: GpuProfile = gpu) -> str:
            peak = {str(key): value for key, value in gpu.peak_flops.items()}.get(precision)
            held = {str(key): value for key, value in gpu.profiles[gpu.default_profile].sustained_flops.items()}.get(precision)
            return "-" if peak is None else f"{peak / TFLOPS:,.0f} / {'unknown' if held is None else f'{held / TFLOPS:,.0f}'} TFLOP/s"

        also = ", ".join(sorted(alias for alias, target in gpu_aliases().items() if target == gpu.name and alias != gpu.name))
        table.add_row(gpu.name, gpu.arch, f"{bytes_to_gb(gpu.hbm_bytes):.1f} GB", rate("bf16"), rate("fp8"), profile.date, also)
    print_rich(table, columns=160)
    return 0
