"""How long a time projection takes: cold, warm, and warm for an unseen configuration, as ratios of one run. No assertions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

from primus_mcp.inputs.architecture import Architecture
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware import Cluster
from primus_mcp.inputs.training import TrainingConfig
from primus_mcp.inputs.workload import read_workload
from primus_mcp.projection.performance import project_performance

EXAMPLES = Path(__file__).parent.parent / "examples" / "workloads"


def cpu_s(arch: Architecture, config: TrainingConfig, cluster: Cluster) -> float:
    """CPU seconds of one evaluation."""
    start = time.process_time()
    project_performance(arch, config, cluster, gemm_backend="roofline")
    return time.process_time() - start


def show(name: str, seconds: Iterable[float]) -> float:
    """Prints and returns the median."""
    middle = median(seconds)
    print(f"{name:58} {1e3 * middle:8.3f} ms")
    return middle


def main() -> None:
    """Times the workload found first, or says that none is there."""
    paths = sorted(EXAMPLES.glob("**/*.yaml"))
    if not paths:
        print("no example workloads")
        return
    for path in paths:
        workload = read_workload(path, environment={})
        arch, base = workload.architecture, workload.baseline
        cluster = make_cluster(num_nodes=max(4, base.tp * base.pp * base.cp // 8))
        dp = cluster.world_size // (base.tp * base.pp * base.cp)
        base = replace(base, gbs=base.mbs * dp * 64)
        print(path.name)
        cold = show("  cold, first evaluation", [cpu_s(arch, base, cluster)])
        warm = show("  warm, the same configuration", [cpu_s(arch, base, cluster) for _ in range(200)])
        other = [replace(base, gbs=base.mbs * dp * batches) for batches in range(65, 165) if not batches % base.pp]
        batch = show("  warm layers, unseen batch", [cpu_s(arch, config, cluster) for config in other])
        print(f"  ratios: cold / warm {cold / warm:.0f}, unseen batch / warm {batch / warm:.1f}")


if __name__ == "__main__":
    main()
