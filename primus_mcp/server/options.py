"""What `primus-mcp serve` was started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from primus_mcp.evaluation.evaluators import Mode
from primus_mcp.tools.registry import Toolset

DEFAULT_PORT = 8765
MAX_SESSIONS = 64
MAX_EVALUATIONS = 10_000
REQUESTS_PER_MINUTE = 6_000
ANSWER_WITHIN_S = 45.0
"""Clients give up after 60 s, some without telling: every answer comes well before."""
TOOLSETS: tuple[Toolset, ...] = ("session", "evaluate", "search", "inspect", "notes", "benchmark", "llm")
READ_ONLY_PREFIXES = ("get_", "list_", "describe_", "explain_")


def default_home() -> Path:
    """`~/.primus-mcp`: hosts start servers in `/` or any other folder, so the working directory is never used."""
    return Path.home() / ".primus-mcp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Paths given at start are the operator's: they are used as they are, and their folders become roots."""

    workload: str | None = None
    target_cluster: str | None = None
    out_dir: Path | None = None
    primus_root: Path | None = None
    home: Path = field(default_factory=default_home)
    roots: tuple[Path, ...] = ()
    mode: Mode = "full"
    allow_policy: bool = False
    read_only: bool = False
    toolsets: tuple[Toolset, ...] = TOOLSETS
    limits: dict[str, float | None] = field(default_factory=dict)
    http: bool = False
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    tokens: tuple[str, ...] = field(default=(), repr=False)
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    answer_within_s: float = ANSWER_WITHIN_S
    requests_per_minute: int = REQUESTS_PER_MINUTE
    max_sessions: int = MAX_SESSIONS

    def home_of(self, owner: str) -> Path:
        """Where the runs of a token are kept: apart from those of other tokens."""
        return self.home / "tokens" / owner[:16] if owner and len(self.tokens) > 1 else self.home

    def roots_of(self, owner: str) -> tuple[Path, ...]:
        """`--root`, the home of the caller's runs, and the files and folder given at start themselves."""
        named = [Path(text).expanduser() for text in (self.workload, self.target_cluster) if text and Path(text).expanduser().is_file()]
        return (*self.roots, self.home_of(owner), *named, *([self.out_dir] if self.out_dir else []))
