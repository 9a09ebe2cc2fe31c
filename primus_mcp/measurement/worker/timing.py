"""Times a unit: forward and backward apart, after warm-up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from statistics import median, quantiles

import torch

from primus_mcp.measurement.job import Job, Number, Unit, UnitTime
from primus_mcp.measurement.worker.device import Device
from primus_mcp.measurement.worker.kernels import Layers
from primus_mcp.measurement.worker.units import Built, build


def spread(samples: list[float]) -> float:
    """(90% - 10%) / median."""
    cuts = quantiles(samples, n=10)
    return (cuts[-1] - cuts[0]) / median(samples)


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return int(storage.data_ptr()), int(storage.nbytes())


def saved_bytes(built: Built) -> int:
    """Bytes of distinct storages that the forward pass saves, apart from weights and inputs."""
    own = {_storage(tensor)[0] for tensor in (*built.weights, *built.inputs)}
    seen: dict[int, int] = {}
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        place, size = _storage(tensor)
        if place not in own:
            seen[place] = size
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = built.forward()
    del out
    return sum(seen.values())


@contextlib.contextmanager
def _fp8(number: str, layers: Layers) -> Iterator[None]:
    """FP8 where it was asked for and the linears are Transformer Engine's."""
    if number != "fp8" or layers.families.get("linear") != "te":
        yield
        return
    import transformer_engine.pytorch as te

    with te.fp8_autocast(enabled=True):
        yield


def _once(built: Built, wanted: list[torch.Tensor], device: Device) -> tuple[float, float]:
    """(forward, backward) seconds of one turn; the gradient that enters is made outside both. Weight gradients are accumulated, as over
    micro-batches.
    """
    for tensor in built.inputs:
        tensor.grad = None
    found: list[torch.Tensor] = []
    device.forget()
    forward_s = device.seconds(lambda: found.append(built.forward()))
    out = found.pop()
    if not wanted:
        return forward_s, 0.0
    gradient = torch.ones_like(out)
    device.forget()
    return forward_s, device.seconds(lambda: torch.autograd.backward(out, gradient))


def time_unit(unit: Unit, job: Job, layers: Layers, device: Device) -> UnitTime:
    """Forward and backward of one unit on this rank. Memory counters cover one forward and backward pass after warm-up."""
    built = build(unit, layers, device)
    wanted = [tensor for tensor in (*built.inputs, *built.weights) if tensor.requires_grad]
    number: Number = "fp8" if job.number == "fp8" and layers.families.get("linear") == "te" else "fp32" if job.number == "fp32" else "bf16"
    with _fp8(job.number, layers):
        before = device.allocated()
        for _ in range(job.warm_up):
            _once(built, wanted, device)
        device.reset_peak()
        turns = [_once(built, wanted, device) for _ in range(job.repeats)]
        peak = device.peak_allocated()
        kept = saved_bytes(built) if wanted else None
    return UnitTime(
        key=unit.key,
        number=number,
        forward_s=median(turn[0] for turn in turns),
        backward_s=median(turn[1] for turn in turns),
        samples=job.repeats,
        spread=spread([sum(turn) for turn in turns]),
        saved_bytes=kept,
        peak_bytes=None if peak is None or before is None else peak - before,
    )
