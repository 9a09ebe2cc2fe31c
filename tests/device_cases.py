"""A GPU that answers a measuring job without a device."""

from __future__ import annotations

from primus_mcp.measurement.job import DeviceMemory, Environment, Job, Kernels, RankReport, TransferTime, UnitTime

TE: Kernels = {"linear": "te", "attention": "te", "experts": "te"}
MI300X = Environment(
    device="gpu",
    name="AMD Instinct MI300X",
    arch="gfx942",
    gpu="mi300x",
    count=8,
    memory_bytes=None,
    clock_mhz=None,
    torch="2.9",
    runtime="HIP 7",
    driver=None,
    python="3.11",
    host="node",
)


def answer(job: Job, environment: Environment = MI300X, kernels: Kernels = TE) -> RankReport:
    """Rank 0: 10 ms forward and 20 ms backward for every unit, twice that for a whole attention block; 8 GiB beside torch."""
    slow = {unit.key: 2.0 if unit.kind == "attention" else 1.0 for unit in job.units}
    units = tuple(
        UnitTime(key=key, number=job.number, forward_s=0.01 * factor, backward_s=0.02 * factor, samples=3, spread=0.0)
        for key, factor in slow.items()
    )
    transfers = tuple(TransferTime(key=t.key, kind=t.kind, ranks=t.ranks, model_bytes=t.model_bytes, time_s=1e-3) for t in job.transfers)
    memory = DeviceMemory(peak_allocated_bytes=1, peak_reserved_bytes=1, reserved_bytes=1 << 30, device_bytes=9 << 30)
    return RankReport(rank=0, environment=environment, kernels=kernels, units=units, transfers=transfers, memory=memory)
