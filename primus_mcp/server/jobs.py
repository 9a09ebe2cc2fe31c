"""Long work: it runs in a thread, reports progress, can be cancelled, and its result can be fetched later."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Literal

from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.server.wording import for_tools
from primus_mcp.tools.results import Result

MAX_RUNNING, MAX_EACH = 8, 4
"""At once, and of one owner: one client cannot keep all others from starting work."""
MAX_KEPT = 200
ID_BYTES = 16
State = Literal["running", "finished", "failed", "cancelled"]
_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Job:
    """One piece of long work. `work(report, should_stop)` returns its result."""

    job_id: str
    owner: str
    title: str
    state: State = "running"
    done: int = 0
    total: int = 0
    text: str = ""
    result: Result | None = None
    error: str | None = None
    finished: Event = field(default_factory=Event, repr=False)
    stop: Event = field(default_factory=Event, repr=False)
    thread: Thread | None = field(default=None, repr=False)

    def report(self, done: int, total: int, text: str) -> None:
        """Progress, from the working thread."""
        self.done, self.total, self.text = done, total, text


Work = Callable[[Callable[[int, int, str], None], Callable[[], bool]], Result]


class JobRunner:
    """Jobs of all clients; each is known only to its owner."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = Lock()

    def start(self, title: str, owner: str, work: Work) -> Job:
        """Run `work` in a thread. Raises InputError when too many run already, naming the owner's own."""
        with self._lock:
            running = [job for job in self._jobs.values() if job.state == "running"]
            own = [job.job_id for job in running if job.owner == owner]
            if len(running) >= MAX_RUNNING or len(own) >= MAX_EACH:
                remedy = (
                    f"wait for one with get_job, or cancel_job: {', '.join(own)}" if own else "wait: other clients keep this server busy"
                )
                raise InputError(f"{len(running)} jobs are running", where=title, remedy=remedy)
            ended = [job for job in self._jobs.values() if job.state != "running"]
            for job in ended[: max(0, len(ended) - MAX_KEPT)]:
                del self._jobs[job.job_id]
            job = Job(job_id=f"j_{secrets.token_urlsafe(ID_BYTES)}", owner=owner, title=title)
            self._jobs[job.job_id] = job
        job.thread = Thread(target=self._run, args=(job, work), name=f"job {title}", daemon=True)
        job.thread.start()
        return job

    def _run(self, job: Job, work: Work) -> None:
        try:
            job.result = work(job.report, job.stop.is_set)
            job.state = "cancelled" if job.stop.is_set() else "finished"
        except PrimusMcpError as error:
            job.error, job.state = for_tools(str(error)), "cancelled" if job.stop.is_set() else "failed"
        except Exception:  # noqa: BLE001  a bug must end as a failed job, not as a thread that vanishes
            _log.exception("job %s failed", job.title)
            job.error, job.state = "an internal error; the server's log has the details", "failed"
        finally:
            job.finished.set()

    def find(self, job_id: str, owner: str) -> Job:
        """The owner's job. Raises InputError for any other id."""
        job = self._jobs.get(job_id)
        if job is None or job.owner != owner:
            raise InputError(
                "is no job of yours", where="job_id", remedy="pass a job_id that a tool returned; results stay in the trial log"
            )
        return job

    def cancel(self, job: Job) -> None:
        """Ask it to stop; it does so before its next evaluation, and ends its child processes."""
        job.stop.set()

    def stop_all(self, timeout_s: float) -> None:
        """Ask all to stop and give them a moment."""
        running = [job for job in self._jobs.values() if job.state == "running"]
        for job in running:
            job.stop.set()
        for job in running:
            job.finished.wait(timeout_s / max(1, len(running)))
