"""`python -m primus_mcp.measurement.worker JOB OUT`, once a rank, under torch.distributed.run. Each rank leaves one answer in OUT and keeps
it up to date from unit to unit.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as distributed

from primus_mcp.measurement.job import (
    EXIT_LATE,
    EXIT_ORPHAN,
    EXIT_OUT_OF_MEMORY,
    PROGRESS,
    DeviceMemory,
    Job,
    RankReport,
    TransferTime,
    Unit,
    UnitFailure,
    UnitTime,
)
from primus_mcp.measurement.worker.device import Device, environment
from primus_mcp.measurement.worker.kernels import Layers
from primus_mcp.measurement.worker.timing import time_unit
from primus_mcp.measurement.worker.transfers import time_transfer

_WATCH_S = 0.25
CPU_ALLOCATOR = "DefaultCPUAllocator"
"""What torch calls itself where the CPU has no memory left: an error without a class of its own."""


def _alive(pid: int) -> bool:
    if os.name == "nt":  # signal 0 is Ctrl-C there; ranks still watch their parent
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _watch(job: Job) -> None:
    """End this rank when whoever started it is gone, or when its time is over: a hung collective holds no Python lock."""
    parent, deadline = os.getppid(), time.monotonic() + job.limit_s
    while True:
        if os.getppid() != parent or (job.launcher_pid and not _alive(job.launcher_pid)):
            os._exit(EXIT_ORPHAN)
        if time.monotonic() > deadline:
            os._exit(EXIT_LATE)
        time.sleep(_WATCH_S)


def _tell(rank: int, text: str) -> None:
    if rank == 0:
        sys.stdout.write(f"{PROGRESS}{text}\n")
        sys.stdout.flush()


def _leave(path: Path, text: str) -> None:
    """A whole file or none."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


class Ledger:
    """What a rank has so far. It lies in a file after every unit, so that a crash, a hang or a kill later loses nothing."""

    def __init__(self, job: Job, rank: int, device: Device, layers: Layers, path: Path) -> None:
        self.job, self.rank, self.device, self.layers, self.path = job, rank, device, layers, path
        self.environment = environment(device)
        self.units: list[UnitTime] = []
        self.transfers: list[TransferTime] = []
        self.failures: list[UnitFailure] = []
        self.memory = DeviceMemory(peak_allocated_bytes=None, peak_reserved_bytes=None, reserved_bytes=None, device_bytes=None)

    def leave(self, *unfinished: UnitFailure) -> None:
        """Write the answer as it stands."""
        report = RankReport(
            rank=self.rank,
            environment=self.environment,
            kernels=self.layers.families,
            units=tuple(self.units),
            transfers=tuple(self.transfers),
            memory=self.memory,
            failures=(*self.failures, *unfinished),
        )
        _leave(self.path, report.model_dump_json())

    def measure(self, unit: Unit) -> None:
        """One unit. What its kernels refuse is written down, and the next unit has its turn; out of memory ends the run."""
        self.leave(UnitFailure(key=unit.key, text="the run ended while it was measured"))
        try:
            self.units.append(time_unit(unit, self.job, self.layers, self.device))
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except (RuntimeError, AssertionError, TypeError, ValueError, ImportError, AttributeError) as error:
            text = one_line(error)
            if CPU_ALLOCATOR in text:
                raise
            self.failures.append(UnitFailure(key=unit.key, text=f"{type(error).__name__}: {text}"))


def one_line(error: BaseException) -> str:
    """An error's text, bounded."""
    return " ".join(str(error).split())[:500]


def measure(job: Job, rank: int, local_rank: int, path: Path) -> None:
    """Everything that the job asks of one rank, into `path`."""
    if job.device == "gpu" and torch.cuda.device_count() < job.ranks:
        count, build = torch.cuda.device_count(), torch.version.hip or torch.version.cuda or "CPU"
        raise RuntimeError(f"torch {torch.__version__} (build for {build}) sees {count} GPUs here, the run needs {job.ranks}")
    device = Device(job.device, local_rank, job.number)
    torch.manual_seed(rank)
    quiet = None
    if job.ranks > 1:
        distributed.init_process_group(device.backend)
        quiet = distributed.new_group(backend="gloo")  # waiting here must not open a communicator on the GPU: its buffers are counted apart
    ledger = Ledger(job, rank, device, Layers(device, job.kernels), path)
    for position, unit in enumerate(job.units, 1):
        _tell(rank, f"layer {position} of {len(job.units)}: {unit.kind}")
        if quiet is not None:
            distributed.barrier(group=quiet)
        ledger.measure(unit)
    ledger.memory = device.memory()
    ledger.leave()
    for position, transfer in enumerate(job.transfers, 1):
        _tell(rank, f"collective {position} of {len(job.transfers)}: {transfer.kind} over {transfer.ranks} ranks")
        measured = time_transfer(transfer, job, device)
        ledger.transfers += [measured] if measured is not None else []
        ledger.leave()
    if quiet is not None:
        distributed.barrier(group=quiet)
    if distributed.is_initialized():
        distributed.destroy_process_group()


def main() -> None:
    """Read the job, measure, leave the answer. Out of memory has an exit code and a file of its own."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out, rank = Path(sys.argv[2]), int(os.environ.get("RANK", "0"))
    threading.Thread(target=_watch, args=(job,), daemon=True).start()
    if job.device == "cpu":
        torch.set_num_threads(job.threads)
    try:
        measure(job, rank, int(os.environ.get("LOCAL_RANK", "0")), out / f"rank{rank}.json")
    except (torch.OutOfMemoryError, MemoryError) as error:
        _leave(out / f"rank{rank}.oom", one_line(error))
        os._exit(EXIT_OUT_OF_MEMORY)
    except RuntimeError as error:
        text = one_line(error)
        if CPU_ALLOCATOR in text:
            _leave(out / f"rank{rank}.oom", text)
            os._exit(EXIT_OUT_OF_MEMORY)
        _leave(out / f"rank{rank}.error", text)
        raise


if __name__ == "__main__":
    main()
