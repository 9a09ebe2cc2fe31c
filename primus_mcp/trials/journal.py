"""journal.jsonl: what happened, event by event. Budgets are counted from it, and a killed run is continued from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from primus_mcp.trials.lines import JsonLines
from primus_mcp.trials.log import Digests, Origin, TrialRecord, utc_now
from primus_mcp.trials.storage import RunDirectory

JOURNAL_NAME = "journal.jsonl"


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    time: str = Field(default_factory=utc_now)


class Reserved(_Event):
    """A trial is about to be evaluated; without a `Done` of the same key it is evaluated again after a kill."""

    event: Literal["reserved"] = "reserved"
    key: str
    origin: Origin
    label: str = ""
    measured: bool = False


class Done(_Event):
    """A trial stands in the log. `priced`: its time was computed; `repeated`: it stood there before."""

    event: Literal["done"] = "done"
    key: str
    origin: Origin
    trial_id: int
    priced: bool
    repeated: bool = False

    @classmethod
    def of(cls, record: TrialRecord, origin: Origin, *, repeated: bool = False) -> Done:
        """The event of a trial that stands in the log."""
        priced = record.result.tokens_per_s_per_gpu is not None
        return cls(key=record.key, origin=origin, trial_id=record.trial_id, priced=priced, repeated=repeated)


class Round(_Event):
    """A round of the LLM driver has ended. `summary`: the model's own words about it, unchecked."""

    event: Literal["round"] = "round"
    index: int
    iterations: int = 0
    duration_s: float = 0.0
    improved: bool = False
    summary: str | None = None


class RoundStarted(_Event):
    """A round begins with `inputs`; without a `Round` of the same index it is replayed after a kill."""

    event: Literal["round_started"] = "round_started"
    index: int
    inputs: dict[str, Any] = Field(default_factory=dict)


class LlmReserved(_Event):
    """A request to a language model is about to be sent. `key` names what is asked, `attempt` counts requests for it."""

    event: Literal["llm_reserved"] = "llm_reserved"
    key: str
    attempt: int = 1
    purpose: str


class LlmCall(_Event):
    """One call of a language model. `usd` null: its price is unknown. `key` and `attempt` as reserved ("": was not); `reply` answers the
    same question after a kill; `error` says why there is none.
    """

    event: Literal["llm_call"] = "llm_call"
    purpose: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None
    duration_s: float = 0.0
    key: str = ""
    attempt: int = 1
    reply: str | None = None
    error: str | None = None


class ToolCall(_Event):
    """A model called a tool in a round and got `result`, or `error`; after a kill it gets the same again."""

    event: Literal["tool_call"] = "tool_call"
    round: int
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    result: Any = None
    error: str | None = None
    refused: bool = Field(default=False, description="a budget refused it")


class Swept(_Event):
    """The whole space was swept, and its best is trial `trial_id`. `proven`: no other is faster under the model that `digests` name."""

    event: Literal["swept"] = "swept"
    trial_id: int
    proven: bool
    legal: int
    digests: Digests


class Note(_Event):
    """A remark that belongs to the history of the run."""

    event: Literal["note"] = "note"
    text: str


class Job(_Event):
    """A measured run or another long job changed its state."""

    event: Literal["job"] = "job"
    job_id: str
    state: Literal["queued", "running", "finished", "failed"]
    text: str = ""


class Cancelled(_Event):
    """A reservation or a job was given up."""

    event: Literal["cancelled"] = "cancelled"
    key: str
    reason: str


Event = Reserved | Done | RoundStarted | Round | LlmReserved | LlmCall | ToolCall | Swept | Note | Job | Cancelled


_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


def done_keys(events: Sequence[Event]) -> set[str]:
    """Keys of the trials that are done and not cancelled since."""
    keys: set[str] = set()
    for event in events:
        if isinstance(event, Done):
            keys.add(event.key)
        elif isinstance(event, Cancelled):
            keys.discard(event.key)
    return keys


class Journal:
    """The journal of one out-dir."""

    def __init__(self, folder: RunDirectory) -> None:
        self._lines: JsonLines[Event] = JsonLines(folder, JOURNAL_NAME, _EVENT.validate_json)
        self.path = self._lines.path

    def events(self) -> Sequence[Event]:
        """Everything so far, in order."""
        return self._lines.read()

    def append(self, event: Event, check: Callable[[Sequence[Event]], None] | None = None) -> None:
        """Add an event. `check` sees all events under the same lock and refuses by raising, so a limit holds over all writers.

        The reservation of a trial that measures nothing is not worth an fsync: after a power cut nothing of it exists. Neither is a tool
        call: the trial that it made is in the log.
        """

        def make(events: Sequence[Event]) -> Event:
            if check is not None:
                check(events)
            return event

        self._lines.append(
            make, durable=not isinstance(event, ToolCall | LlmReserved) and (not isinstance(event, Reserved) or event.measured)
        )
