"""Times collectives between the ranks of a run."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as distributed

from primus_mcp.measurement.job import Job, Transfer, TransferTime
from primus_mcp.measurement.worker.device import Device


def _call(transfer: Transfer, device: Device, group: distributed.ProcessGroup) -> Callable[[], object]:
    size, rank = transfer.ranks, distributed.get_rank()
    count = transfer.elements if device.kind == "cpu" else transfer.model_bytes // device.dtype.itemsize
    whole = device.tensor(max(size, count - count % size))
    part = torch.empty(whole.numel() // size, dtype=whole.dtype, device=whole.device)
    other = torch.empty_like(whole)
    if transfer.kind == "all_gather":
        return lambda: distributed.all_gather_into_tensor(whole, part, group=group)
    if transfer.kind == "reduce_scatter":
        return lambda: distributed.reduce_scatter_tensor(part, whole, group=group)
    if transfer.kind == "all_reduce":
        return lambda: distributed.all_reduce(other.copy_(whole), group=group)
    if transfer.kind == "all_to_all":
        return lambda: distributed.all_to_all_single(other, whole, group=group)
    if rank == 0:
        return lambda: distributed.send(whole, 1)
    return lambda: distributed.recv(other, 0)


def time_transfer(transfer: Transfer, job: Job, device: Device) -> TransferTime | None:
    """Seconds of the slowest rank, the same answer on all of the group; None on ranks outside it."""
    group = distributed.new_group(list(range(transfer.ranks)))
    if distributed.get_rank() >= transfer.ranks:
        return None
    call = _call(transfer, device, group)
    samples: list[float] = []
    for turn in range(job.warm_up + job.repeats):
        distributed.barrier(group=group)
        seconds = device.seconds(call, alone=False)
        if turn >= job.warm_up:
            samples.append(seconds)
    slowest = torch.tensor(samples, dtype=torch.float64).to(torch.float32).to(device.target)
    distributed.all_reduce(slowest, op=distributed.ReduceOp.MAX, group=group)
    return TransferTime(
        key=transfer.key,
        kind=transfer.kind,
        ranks=transfer.ranks,
        model_bytes=transfer.model_bytes,
        time_s=median(slowest.tolist()),
    )
