"""How a round or the whole stage ends early. `Stop` is no `Exception`: neither generated code nor a library can swallow it."""

from __future__ import annotations

from typing import Literal

Scope = Literal["round", "stage"]
Cause = Literal["budget", "provider", "reply", "sandbox"]


class Stop(BaseException):
    """Ends the round, or the stage with it. `reason` is one line for people."""

    def __init__(self, reason: str, *, scope: Scope, cause: Cause) -> None:
        self.reason, self.scope, self.cause = reason, scope, cause
        super().__init__(reason)


class ToolFailedError(Exception):
    """What a model sees of a call that failed: one line, never a traceback."""


class ProviderError(Exception):
    """A request that was not answered. `retry_after_s`: what the provider asked for. `scope`: what it ends when it is not sent again.

    `late`: the limit of a request ran out.
    """

    def __init__(
        self, text: str, *, retryable: bool, retry_after_s: float | None = None, scope: Scope = "stage", late: bool = False
    ) -> None:
        self.retryable, self.retry_after_s, self.scope, self.late = retryable, retry_after_s, scope, late
        super().__init__(text)
