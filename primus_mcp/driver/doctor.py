"""For `doctor --llm`: one tiny request, and whether generated code can run here. Lines for people, without secrets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from primus_mcp.driver.desk import Reply
from primus_mcp.driver.settings import LanguageModel, NoLanguageModelError, resolve_language_model
from primus_mcp.driver.stage import missing_dspy
from primus_mcp.driver.stops import ProviderError
from primus_mcp.inputs.cluster_file import AgentSettings

QUESTION = "Reply with the single word ok."
TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the doctor's report."""

    name: str
    ok: bool
    text: str


def check_llm(
    agent: AgentSettings | None = None,
    *,
    where: str = "the cluster file:",
    model: str | None = None,
    base_url: str | None = None,
    folders: Iterable[Path] = (),
) -> list[Check]:
    """Settings, client, one request with what it cost, sandbox. Never raises for what the user can cause."""
    if (missing := missing_dspy()) is not None:
        return [Check(name="agent", ok=False, text=missing)]
    try:
        found = resolve_language_model(agent or AgentSettings(), where=where, model=model, base_url=base_url, folders=folders)
    except NoLanguageModelError as error:
        return [Check(name="language model", ok=False, text=str(error)), check_sandbox()]
    return [Check(name="language model", ok=True, text=found.text), *_request(found), check_sandbox()]


def _request(found: LanguageModel) -> list[Check]:
    from primus_mcp.driver.dspy_model import backend_of, language_model, prepare_environment, reply_of

    prepare_environment(found)
    began_s = time.monotonic()
    try:
        import dspy

        lm = language_model(found, timeout_s=TIMEOUT_S)
        client = Check(name="client", ok=True, text=f"engine {found.engine}: {backend_of(lm)} carries the requests")
        reply = reply_of(lm, lambda: list(dspy.LM.__call__(lm, QUESTION)), found.secret)
    except ProviderError as error:
        return [Check(name="request", ok=False, text=str(error))]
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return [Check(name="request", ok=False, text=text.replace(found.secret, "***") if found.secret else text)]
    return [client, Check(name="request", ok=True, text=f"answered in {time.monotonic() - began_s:.1f} s: {_cost(reply)}")]


def _cost(reply: Reply) -> str:
    if reply.input_tokens is None and reply.output_tokens is None:
        tokens = "the provider did not say how many tokens"
    else:
        tokens = f"{reply.input_tokens or 0} tokens in, {reply.output_tokens or 0} out"
    return f"{tokens}, {'price unknown' if reply.usd is None else f'{reply.usd:.6f} US$'}"


def check_sandbox() -> Check:
    """Whether the Deno sandbox runs, which takes a few seconds."""
    if (missing := missing_dspy()) is not None:
        return Check(name="sandbox", ok=False, text=missing)
    from primus_mcp.driver.sandbox import SandboxError, Sandboxes

    sandboxes = Sandboxes()
    try:
        sandboxes.probe()
    except SandboxError as error:
        return Check(name="sandbox", ok=False, text=f"{error}; the model calls tools one at a time (ReAct) instead")
    finally:
        sandboxes.close()
    return Check(name="sandbox", ok=True, text="generated code runs in Deno, offline")
