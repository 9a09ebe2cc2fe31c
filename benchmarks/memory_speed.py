"""CPU time of one memory evaluation: cold (nothing memoised) and warm (a sweep over configurations whose layers were seen)."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from itertools import product

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.inputs.training import Recompute, TrainingConfig
from primus_mcp.projection.memory.projection import MemoryProjection, project_placed
from primus_mcp.projection.placement import place

DENSE = workload_from_model("llama3.1_70B", seq_length=8192).architecture
MIXTURE = workload_from_model("deepseek_v3", seq_length=4096).architecture


def _project(arch: Architecture, config: TrainingConfig, world: int) -> MemoryProjection:
    return project_placed(arch, config, place(arch, config, world), "amd")


def _cases() -> list[tuple[str, Architecture, TrainingConfig, int]]:
    dense = TrainingConfig(tp=8, pp=4, mbs=1, gbs=256, sequence_parallel=True)
    mixture = TrainingConfig(pp=8, ep=32, mbs=1, gbs=2048, pipeline_layout="Et*8|" + "t*8|" * 6 + "t*5L")
    return [
        ("dense TP8 PP4", DENSE, dense, 256),
        ("dense TP8 PP4 VPP5", DENSE, replace(dense, vpp=5, schedule="interleaved"), 256),
        ("dense TP8 PP4 ZBV", DENSE, replace(dense, vpp=2, schedule="zbv-formatted"), 256),
        ("MLA mixture PP8 EP32", MIXTURE, mixture, 256),
    ]


def main() -> None:
    """Prints microseconds of CPU an evaluation."""
    for name, arch, config, world in _cases():
        start = time.process_time()
        _project(arch, config, world)
        cold = time.process_time() - start
        variants = [
            replace(config, overlap_grad_reduce=flag, gbs=config.gbs * scale, recompute=recompute)
            for flag, scale, recompute in product(
                (False, True), (1, 2, 4), (Recompute(), Recompute(granularity="full", method="uniform", num_layers=1))
            )
        ]
        for variant in variants:
            _project(arch, variant, world)
        rounds = 20
        start = time.process_time()
        for _ in range(rounds):
            for variant in variants:
                _project(arch, variant, world)
        warm = (time.process_time() - start) / rounds / len(variants)
        sys.stdout.write(f"{name:24s} cold {cold * 1e6:8.0f} us   warm {warm * 1e6:7.1f} us\n")


if __name__ == "__main__":
    main()
