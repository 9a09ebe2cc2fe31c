"""`python -m primus_mcp.measurement.worker JOB OUT`, once a rank, under torch.distributed.run. Each rank leaves one answer in OUT."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as distributed

from primus_mcp.measurement.job import Job, RankReport, TransferTime, UnitTime
from primus_mcp.measurement.worker.device import Device, environment
from primus_mcp.measurement.worker.kernels import Layers
from primus_mcp.measurement.worker.timing import time_unit
from primus_mcp.measurement.worker.transfers import time_transfer

PROGRESS = "@progress "
EXIT_OUT_OF_MEMORY, EXIT_ORPHAN, EXIT_LATE = 70, 71, 72
_WATCH_S = 0.25


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


def measure(job: Job, rank: int, local_rank: int) -> RankReport:
    """Everything that the job asks of one rank."""
    if job.device == "gpu" and torch.cuda.device_count() < job.ranks:
        count, build = torch.cuda.device_count(), torch.version.hip or torch.version.cuda or "CPU"
        raise RuntimeError(f"torch {torch.__version__} (build for {build}) sees {count} GPUs here, the run needs {job.ranks}")
    device = Device(job.device, local_rank, job.number)
    torch.manual_seed(rank)
    layers = Layers(device, job.kernels)
    quiet = None
    if job.ranks > 1:
        distributed.init_process_group(device.backend)
        quiet = distributed.new_group(backend="gloo")  # waiting here must not open a communicator on the GPU: its buffers are counted apart
    units: list[UnitTime] = []
    for position, unit in enumerate(job.units, 1):
        _tell(rank, f"layer {position} of {len(job.units)}: {unit.kind}")
        if quiet is not None:
            distributed.barrier(group=quiet)
        units.append(time_unit(unit, job, layers, device))
    memory = device.memory()
    transfers: list[TransferTime] = []
    for position, transfer in enumerate(job.transfers, 1):
        _tell(rank, f"collective {position} of {len(job.transfers)}: {transfer.kind} over {transfer.ranks} ranks")
        measured = time_transfer(transfer, job, device)
        transfers += [measured] if measured is not None else []
    report = RankReport(
        rank=rank,
        environment=environment(device),
        kernels=layers.families,
        units=tuple(units),
        transfers=tuple(transfers),
        memory=memory,
    )
    if quiet is not None:
        distributed.barrier(group=quiet)
        distributed.destroy_process_group()
    return report


def main() -> None:
    """Read the job, measure, leave the answer. Out of memory has an exit code and a file of its own."""
    job = Job.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    out, rank = Path(sys.argv[2]), int(os.environ.get("RANK", "0"))
    threading.Thread(target=_watch, args=(job,), daemon=True).start()
    if job.device == "cpu":
        torch.set_num_threads(job.threads)
    try:
        report = measure(job, rank, int(os.environ.get("LOCAL_RANK", "0")))
    except (torch.OutOfMemoryError, MemoryError) as error:
        _leave(out / f"rank{rank}.oom", " ".join(str(error).split())[:500])
        os._exit(EXIT_OUT_OF_MEMORY)
    except RuntimeError as error:
        text = " ".join(str(error).split())[:500]
        if "DefaultCPUAllocator" in text:
            _leave(out / f"rank{rank}.oom", text)
            os._exit(EXIT_OUT_OF_MEMORY)
        _leave(out / f"rank{rank}.error", text)
        raise
    _leave(out / f"rank{rank}.json", report.model_dump_json())


if __name__ == "__main__":
    main()
