"""Who does the tasks of a sweep: this process, processes of this machine, or an existing Ray cluster. The answer is the same."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from typing import TYPE_CHECKING, Any, Protocol

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.search.sweep_units import Outcome, SweepProblem, Task, Walker
from primus_mcp.search.workers import begin_worker, interrupts_held, workers_alive

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

POLL_S = 0.2
"""How often a waiting sweep looks whether it should stop."""
AHEAD = 2
"""Tasks a worker that are out at once: more would be walked with older limits."""
KNOCK_S = 5.0
Stop = Callable[[], bool]


class Crew(Protocol):
    """Workers of one sweep."""

    def outcomes(self, tasks: Iterator[Task], should_stop: Stop) -> Iterator[Outcome | None]:
        """What became of the tasks, in any order; a task is taken when a worker is free for it. None: nothing yet, or cut short."""
        ...

    def close(self) -> None:
        """End the workers, whatever they do."""
        ...


class Alone:
    """This process."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker

    def outcomes(self, tasks: Iterator[Task], should_stop: Stop) -> Iterator[Outcome | None]:
        """One after the other."""
        for task in tasks:
            yield self._walker.work(task, should_stop)

    def close(self) -> None:
        """Nothing to end."""


_walker: Walker | PrimusMcpError | None = None
_stop: Event | None = None


def _start(problem: SweepProblem, stop: Event) -> None:
    global _walker, _stop
    begin_worker()
    _stop = stop
    try:
        _walker = Walker(problem)
    except PrimusMcpError as error:
        _walker = error


def _work(task: Task) -> Outcome | None:
    if isinstance(_walker, PrimusMcpError):
        raise _walker
    assert _walker is not None and _stop is not None
    return _walker.work(task, _stop.is_set)


def _result(future: Future[Outcome | None]) -> Outcome | None:
    with workers_alive():
        return future.result()


class Processes:
    """Processes of this machine, started anew (`spawn`), so that it is the same on every system and safe beside threads."""

    def __init__(self, problem: SweepProblem, count: int) -> None:
        context: SpawnContext = get_context("spawn")
        self._count, self._stop = count, context.Event()
        self._pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start, initargs=(problem, self._stop))

    def outcomes(self, tasks: Iterator[Task], should_stop: Stop) -> Iterator[Outcome | None]:
        """As they are done."""
        running: set[Future[Outcome | None]] = set()
        more = True
        while more or running:
            while more and len(running) < AHEAD * self._count:
                task = next(tasks, None)
                if task is None:
                    more = False
                    break
                with workers_alive(), interrupts_held():
                    running.add(self._pool.submit(_work, task))
            done, running = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
            yield from (_result(future) for future in done)
            if should_stop():
                return
            yield None

    def close(self) -> None:
        """Workers see the event between two blocks."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _knock(address: str) -> None:
    """Raises OSError where nobody answers at host:port: Ray itself tries for minutes."""
    host, separator, port = address.rpartition("://")[2].rpartition(":")
    if separator and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK_S).close()


class RayCluster:
    """Actors of a Ray cluster that runs already, one a CPU of it; the package must be installed there in the same version."""

    def __init__(self, problem: SweepProblem, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("Ray is not installed", where="--ray", remedy="pip install 'primus-mcp[ray]', or use --jobs") from None
        self._ray, self._started = ray, not ray.is_initialized()
        try:
            _knock(address)
            ray.init(address=address, ignore_reinit_error=True, log_to_driver=False, logging_level="error")
            count = int(ray.cluster_resources().get("CPU", 0))
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            first = str(error).strip().splitlines()
            remedy = "start one with `ray start --head`, or give its address; --jobs needs none"
            raise InputError(f"no Ray cluster at {address!r}: {first[0] if first else error}", where="--ray", remedy=remedy) from error
        if count < 1:
            raise InputError(f"the Ray cluster at {address!r} has no CPU", where="--ray", remedy="add nodes, or use --jobs")
        kept = ray.put(problem)
        remote = ray.remote(num_cpus=1)(Walker)
        self._actors = [remote.remote(kept) for _ in range(count)]

    def outcomes(self, tasks: Iterator[Task], should_stop: Stop) -> Iterator[Outcome | None]:
        """As they are done; an actor gets its next task when it is free."""
        running: dict[Any, Any] = {}
        free = self._actors * AHEAD
        more = True
        while more or running:
            while more and free:
                task = next(tasks, None)
                if task is None:
                    more = False
                    break
                actor = free.pop()
                running[actor.work.remote(task)] = actor
            done, _ = self._ray.wait(list(running), timeout=POLL_S)
            for one in done:
                free.append(running.pop(one))
                yield self._ray.get(one)
            if should_stop():
                return
            yield None

    def close(self) -> None:
        """Our actors go; the cluster stays."""
        for actor in self._actors:
            self._ray.kill(actor)
        if self._started:
            self._ray.shutdown()


def crew_for(walker: Walker, *, jobs: int, ray: str | None, units: int) -> Crew:
    """Ray where an address is given, else as many processes as asked for and useful."""
    if ray is not None:
        return RayCluster(walker.problem, ray)
    count = min(jobs, units)
    return Processes(walker.problem, count) if count > 1 else Alone(walker)


def cores() -> int:
    """CPU cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
