"""DSPy's language model with the desk in between: every request is reserved, recorded, repeated where that helps, and replayed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from primus_mcp.driver.desk import REQUEST_LIMIT_S, Desk, Reply
from primus_mcp.driver.settings import LanguageModel
from primus_mcp.driver.stops import ProviderError

SILENCE_LIMIT_S = REQUEST_LIMIT_S + 60.0
"""For the client itself, so that requests that nobody waits for any more end."""
MAX_REPLY = 50_000
"""Characters of an answer that are read: a model that runs away fills neither the journal nor the next question."""
_LITELLM_OFFLINE = "LITELLM_LOCAL_MODEL_COST_MAP"
"""Keeps LiteLLM from fetching its price list at import."""


def prepare_environment(model: LanguageModel) -> None:
    """Before DSPy is imported: no network at import, and `.env` entries of providers that authenticate in their own way."""
    os.environ.setdefault(_LITELLM_OFFLINE, "True")
    for name, value in model.extra.items():
        os.environ.setdefault(name, value)


def _client_settings(model: LanguageModel, timeout_s: float) -> dict[str, Any]:
    given = {"api_key": model.api_key, "api_base": model.base_url}
    return {"timeout": timeout_s, **{name: value for name, value in given.items() if value is not None}}


def provider_error(error: Exception, secret: str | None) -> ProviderError:
    """DSPy's error as ours: one line without the key; what may pass is sent again, answers that are none among it (a proxy's page).

    A request that the provider calls invalid ends the round only: most often it is too long, and not every provider says so in a way that
    can be told; the next round starts short.
    """
    from dspy.utils.exceptions import (
        LMInvalidRequestError,
        LMProviderError,
        LMUnexpectedError,
        LMUnsupportedModelError,
        is_retryable_lm_error,
    )

    text = " ".join(f"{type(error).__name__}: {error}".split())
    if secret:
        text = text.replace(secret, "***")
    return ProviderError(
        text[:300],
        retryable=is_retryable_lm_error(error) or type(error) is LMProviderError or isinstance(error, LMUnexpectedError),
        retry_after_s=getattr(error, "retry_after", None),
        scope="round" if isinstance(error, LMInvalidRequestError) and not isinstance(error, LMUnsupportedModelError) else "stage",
    )


def _text_of(output: Any) -> str:
    text = output.get("text") if isinstance(output, Mapping) else output
    return text[:MAX_REPLY] if isinstance(text, str) else ""


def language_model(model: LanguageModel, *, desk: Desk | None = None, timeout_s: float = SILENCE_LIMIT_S) -> Any:
    """A `dspy.LM` without cache and without retries of its own. With a desk, every call goes over it."""
    import dspy

    class DeskModel(dspy.LM):  # type: ignore[misc]
        """`purpose` of the next requests: plan, rlm."""

        purpose = "rlm"

        def __call__(self, prompt: Any = None, *, messages: Any = None, **kwargs: Any) -> list[str]:
            def send() -> Reply:
                return reply_of(self, lambda: super(DeskModel, self).__call__(prompt, messages=messages, **kwargs), model.secret)

            return [send().text if desk is None else desk.ask(send, purpose=self.purpose)]

    return DeskModel(model.model, cache=False, num_retries=0, engine=model.engine, **_client_settings(model, timeout_s))


def reply_of(lm: Any, request: Callable[[], list[Any]], secret: str | None) -> Reply:
    """Send, and read text, tokens and cost. Raises ProviderError."""
    from dspy.utils.exceptions import LMError

    try:
        outputs = request()
    except LMError as error:
        raise provider_error(error, secret) from None
    entry = lm.history[-1] if lm.history else {}
    usage = entry.get("usage") or {}
    lm.history.clear()
    return Reply(
        text=_text_of(outputs[0]) if outputs else "",
        model=lm.model,
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        usd=entry.get("cost"),
    )


def backend_of(lm: Any) -> str:
    """Which client carries the requests: `lm15` (DSPy's own) or `litellm`."""
    from dspy.clients.backend_selection import select_backend

    return "lm15" if select_backend(lm).native else "litellm"
