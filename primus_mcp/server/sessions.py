"""Sessions that clients have open: unguessable ids, each known only to the token that opened it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

from primus_mcp.api import Problem
from primus_mcp.errors import InputError
from primus_mcp.server.fence import Fence
from primus_mcp.server.opening import Request, resolved, safe_name, start_session
from primus_mcp.server.options import ServeOptions
from primus_mcp.session import TuningSession
from primus_mcp.trials.session_file import SESSION_NAME

ID_BYTES = 16
LOCAL = ""
"""Owner of everything on stdio, and over loopback HTTP without tokens."""


@dataclass(slots=True, kw_only=True)
class OpenSession:
    """A session as a client knows it. `set_cluster` changes `request` and `tuning`; what was tried elsewhere stays in `by_cluster`."""

    session_id: str
    owner: str
    request: Request
    fence: Fence
    folder: Path | None
    tuning: TuningSession
    lines: tuple[str, ...]
    first_cluster: str
    by_cluster: dict[str, tuple[Request, TuningSession, tuple[str, ...]]] = field(default_factory=dict)
    last_used: int = 0
    announced: int = 0
    """Trials that subscribers have been told of."""

    def folder_on(self, cluster: str) -> Path | None:
        """Where runs on a cluster go: the given out-dir for the first, below it for others; None: the default place."""
        if self.folder is None or cluster == self.first_cluster:
            return self.folder
        return self.folder / "clusters" / safe_name(cluster)


class SessionStore:
    """All open sessions. Closing the server loses nothing: a session is its out-dir."""

    def __init__(self, options: ServeOptions) -> None:
        self.options = options
        self._operator = Fence((), everything=True)
        self._sessions: dict[str, OpenSession] = {}
        self._lock = Lock()
        self._clock = 0

    def open_at_start(self) -> OpenSession | None:
        """The session that the command line names, if it does; trusted with any path."""
        options = self.options
        if options.workload is None:
            return None
        if options.target_cluster is None:
            raise InputError("--workload without --target-cluster", where="serve", remedy="give both, or neither and open_session")
        request = Request(workload=options.workload, cluster=str(options.target_cluster))
        return self._add(request, LOCAL, self._operator, options.out_dir)

    def open(self, request: Request, owner: str) -> OpenSession:
        """Open a session, or return the one that this owner has open on the same out-dir."""
        fence = Fence(self.options.roots_of(owner))
        return self._add(request, owner, fence, self._out_dir(request.out_dir, fence, owner) if request.out_dir else None)

    def _out_dir(self, text: str, fence: Fence, owner: str) -> Path:
        """A folder for a run, a relative one below the caller's runs. One that holds something else is refused: files would be lost."""
        relative = not Path(text).expanduser().is_absolute()
        folder = (Fence([self.options.home_of(owner) / "runs"]) if relative else fence).path(text, "out_dir")
        if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / SESSION_NAME).is_file())):
            raise InputError("is neither a new folder, an empty one nor a run", where="out_dir", remedy="name a new folder")
        return folder

    def _add(self, request: Request, owner: str, fence: Fence, folder: Path | None) -> OpenSession:
        tuning, lines = start_session(request, fence, self.options, self.options.home_of(owner), lambda _: folder)
        with self._lock:
            for known in self._sessions.values():
                if known.owner == owner and known.tuning.folder.path == tuning.folder.path and known.tuning.digests == tuning.digests:
                    return self._touch(known)
            self._drop_oldest(owner)
            session_id = f"s_{secrets.token_urlsafe(ID_BYTES)}"
            opened = OpenSession(
                session_id=session_id,
                owner=owner,
                request=request,
                fence=fence,
                folder=folder,
                tuning=tuning,
                lines=lines,
                first_cluster=tuning.target.cluster.name,
            )
            opened.by_cluster[tuning.digests.cluster] = (request, tuning, lines)
            opened.announced = tuning.resumed
            self._sessions[session_id] = opened
            return self._touch(opened)

    def _drop_oldest(self, owner: str) -> None:
        """Make room: the owner's least recently used session is forgotten here; its out-dir keeps everything."""
        own = sorted((entry for entry in self._sessions.values() if entry.owner == owner), key=lambda entry: entry.last_used)
        for entry in own[: max(0, len(own) - self.options.max_sessions + 1)]:
            del self._sessions[entry.session_id]

    def _touch(self, entry: OpenSession) -> OpenSession:
        self._clock += 1
        entry.last_used = self._clock
        return entry

    def of(self, owner: str) -> list[OpenSession]:
        """The owner's open sessions, in the order they were opened."""
        with self._lock:
            return [entry for entry in self._sessions.values() if entry.owner == owner]

    def everyone(self) -> list[OpenSession]:
        """All open sessions."""
        with self._lock:
            return list(self._sessions.values())

    def find(self, session_id: str, owner: str) -> OpenSession:
        """The session that a call names; without an id the only open one. One of another owner does not exist."""
        own = self.of(owner)
        if not session_id:
            if self.options.http:
                raise InputError("is missing", where="session_id", remedy="pass the session_id that open_session returned")
            if len(own) == 1:
                return self._touch(own[0])
            if not own:
                raise InputError("no session is open", remedy="call open_session(workload=..., gpu=..., nodes=...) first")
            ids = ", ".join(f"{entry.session_id} ({entry.tuning.workload.name} on {entry.tuning.target.cluster.name})" for entry in own)
            raise InputError("is missing and several sessions are open", where="session_id", remedy=f"pass one of {ids}")
        for entry in own:
            if secrets.compare_digest(entry.session_id.encode(), session_id.encode("utf-8", "replace")):
                return self._touch(entry)
        raise InputError(
            "is not a session that is open here", where="session_id", remedy="call open_session again: an out-dir keeps every trial"
        )

    def problem_on(self, entry: OpenSession, gpu: str, nodes: int) -> Problem:
        """What `set_cluster` to this GPU and size would be about; no session is opened and nothing is written."""
        changed = replace(entry.request, gpu=gpu or entry.request.gpu, nodes=nodes or entry.request.nodes)
        return resolved(changed, entry.fence, self.options, self.options.home_of(entry.owner))[1]

    def set_cluster(self, entry: OpenSession, changed: Request, *, own_file: bool) -> None:
        """Point a session at another cluster. `own_file`: the cluster text is the one it was opened with."""
        fence = entry.fence if own_file else Fence(self.options.roots_of(entry.owner))
        tuning, lines = start_session(changed, fence, self.options, self.options.home_of(entry.owner), entry.folder_on)
        with self._lock:
            entry.request, entry.tuning, entry.lines = entry.by_cluster.setdefault(tuning.digests.cluster, (changed, tuning, lines))
