"""The device of a rank: how to wait for it, what it is, how much of its memory is used."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable
from pathlib import Path

import torch

from primus_mcp.inputs.hardware_files import gpu_names
from primus_mcp.measurement.job import DeviceKind, DeviceMemory, Environment, Number

DTYPES = {"bf16": torch.bfloat16, "fp8": torch.bfloat16, "fp32": torch.float32}
SCRATCH_BYTES: dict[DeviceKind, int] = {"gpu": 512 << 20, "cpu": 16 << 20}
"""More than the last private cache holds: 256 MB of an MI300X, a few MB of a CPU core."""
_DRIVER_FILES = ("/sys/module/amdgpu/version", "/proc/driver/nvidia/version")


class Device:
    """One GPU of the host (device `local_rank`), or the CPU. ROCm builds of torch answer to the same names as CUDA builds."""

    def __init__(self, kind: DeviceKind, local_rank: int, number: Number) -> None:
        self.kind, self.number = kind, number
        self.dtype = DTYPES[number]
        self.target = torch.device("cuda", local_rank) if kind == "gpu" else torch.device("cpu")
        if kind == "gpu":
            torch.cuda.set_device(self.target)
        self._scratch = torch.empty(SCRATCH_BYTES[kind], dtype=torch.int8, device=self.target)

    @property
    def backend(self) -> str:
        """Of the process group: RCCL answers to nccl."""
        return "nccl" if self.kind == "gpu" else "gloo"

    def tensor(self, *shape: int, grad: bool = False, scale: float = 0.02) -> torch.Tensor:
        """Random values; zeros would draw less power than training does."""
        values = torch.randn(*shape, dtype=torch.float32, device=self.target).mul_(scale).to(self.dtype)
        return values.requires_grad_(grad)

    def seconds(self, call: Callable[[], object], *, alone: bool = True) -> float:
        """Device time of a call, by device events. On the CPU: time of this thread where it computes `alone` (one thread does all the
        work, and other programs must not count), wall time where it waits for other ranks.
        """
        if self.kind == "cpu":
            clock = time.thread_time if alone and torch.get_num_threads() == 1 else time.perf_counter
            start = clock()
            call()
            return clock() - start
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1000

    def forget(self) -> None:
        """Empty the caches: in training, other layers ran since this one's weights and activations were touched."""
        self._scratch.fill_(1)

    def reset_peak(self) -> None:
        """Start a new peak."""
        if self.kind == "gpu":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def allocated(self) -> int | None:
        """Bytes allocated now; None on CPU, which counts nothing."""
        return int(torch.cuda.memory_allocated()) if self.kind == "gpu" else None

    def peak_allocated(self) -> int | None:
        """Highest bytes allocated since `reset_peak`."""
        return int(torch.cuda.max_memory_allocated()) if self.kind == "gpu" else None

    def memory(self) -> DeviceMemory:
        """The counters of this rank's device."""
        if self.kind == "cpu":
            return DeviceMemory(peak_allocated_bytes=None, peak_reserved_bytes=None, reserved_bytes=None, device_bytes=None)
        free, total = torch.cuda.mem_get_info()
        return DeviceMemory(
            peak_allocated_bytes=int(torch.cuda.max_memory_allocated()),
            peak_reserved_bytes=int(torch.cuda.max_memory_reserved()),
            reserved_bytes=int(torch.cuda.memory_reserved()),
            device_bytes=int(total - free),
        )


def catalogue_gpu(name: str) -> str | None:
    """The catalogue's GPU that a device name contains ('AMD Instinct MI300X' is mi300x), the longest first; None: not there."""
    plain = "".join(character for character in name.lower() if character.isalnum())
    found = [gpu for gpu in gpu_names() if gpu.replace("_", "") in plain]
    return max(found, key=len) if found else None


def _driver() -> str | None:
    for path in _DRIVER_FILES:
        try:
            with Path(path).open(encoding="utf-8") as file:
                return file.readline().strip()
        except OSError:
            continue
    return None


def _clock_mhz() -> float | None:
    """The clock now, where torch can ask for it (it needs amdsmi or pynvml)."""
    try:
        return float(torch.cuda.clock_rate())
    except (RuntimeError, ImportError, AttributeError, OSError):
        return None


def environment(device: Device) -> Environment:
    """What a rank runs on."""
    base = Environment(
        device="cpu",
        name=platform.machine(),
        arch="cpu",
        gpu=None,
        count=os.cpu_count() or 1,
        memory_bytes=None,
        clock_mhz=None,
        torch=str(torch.__version__),
        runtime=None,
        driver=_driver(),
        python=platform.python_version(),
        host=socket.gethostname(),
    )
    if device.kind == "cpu":
        return base
    properties = torch.cuda.get_device_properties(device.target)
    name = str(properties.name)
    arch = str(getattr(properties, "gcnArchName", "")).split(":")[0] or f"sm_{properties.major}{properties.minor}"
    return base.model_copy(
        update={
            "device": "gpu",
            "name": name,
            "arch": arch,
            "gpu": catalogue_gpu(name),
            "count": int(torch.cuda.device_count()),
            "memory_bytes": int(properties.total_memory),
            "clock_mhz": _clock_mhz(),
            "runtime": f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}",
        }
    )
