"""Which language model, where and with which key: flag > environment > .env > cluster YAML > default. Secrets are never shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from primus_mcp.driver.dotenv import dotenv_values
from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster_file import AgentSettings

DEFAULT_MODEL = "openai/gpt-4o"
LLM_MODEL = "LLM_MODEL"
NO_KEY_NEEDED = "none"
"""Sent to endpoints that ask for no key: OpenAI-compatible clients refuse to start without one."""
Engine = Literal["auto", "litellm"]

_KEYS: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
    "mistral": ("MISTRAL_API_KEY",),
    "groq": ("GROQ_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "xai": ("XAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
}
"""Variables that hold a provider's key. Providers that are not listed (bedrock, vertex_ai, ...) authenticate in their own way."""
_LOCAL = frozenset({"ollama", "ollama_chat", "hosted_vllm", "lm_studio", "llamafile", "vllm"})
_BASES: dict[str, tuple[str, ...]] = {
    "openai": ("OPENAI_API_BASE", "OPENAI_BASE_URL"),
    "anthropic": ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL"),
    "azure": ("AZURE_API_BASE",),
    "hosted_vllm": ("HOSTED_VLLM_API_BASE",),
    "ollama": ("OLLAMA_API_BASE",),
    "ollama_chat": ("OLLAMA_API_BASE",),
}
_MODEL = re.compile(r"^[A-Za-z0-9_.-]+/\S+$")


class NoLanguageModelError(InputError):
    """No language model can be asked: what is missing, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """The model that was resolved. `api_key` None: the provider's own way of authentication. `sources` says where each part comes from."""

    model: str
    base_url: str | None = field(repr=False)
    api_key: str | None = field(repr=False)
    engine: Engine
    sources: Mapping[str, str]
    extra: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def provider(self) -> str:
        """The part before the first slash."""
        return self.model.partition("/")[0]

    @property
    def secret(self) -> str | None:
        """What no text may show."""
        return None if self.api_key == NO_KEY_NEEDED else self.api_key

    @property
    def text(self) -> str:
        """One line without secrets: `openai/gpt-4o (from LLM_MODEL), key from OPENAI_API_KEY`."""
        parts = [f"{self.model} (from {self.sources['model']})"]
        if self.base_url is not None:
            parts.append(f"at {without_credentials(self.base_url)} (from {self.sources['base_url']})")
        parts.append(f"key {self.sources['api_key']}")
        return ", ".join(parts)


def without_credentials(url: str) -> str:
    """Scheme, host, port and path of a URL: no user, password, query or fragment."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{parts.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    value: str
    source: str


class _Sources:
    """Lookup of one name after the other in the order environment, .env files."""

    def __init__(self, environment: Mapping[str, str], folders: Iterable[Path]) -> None:
        self._environment = environment
        self.files = dotenv_values(folders)

    def find(self, names: Iterable[str]) -> _Found | None:
        """The first that is set and not empty: all names in the environment, then all in files."""
        names = tuple(names)
        for name in names:
            if value := self._environment.get(name, "").strip():
                return _Found(value=value, source=f"{name} in the environment")
        for name in names:
            value, path = self.files.get(name, ("", Path()))
            if value:
                return _Found(value=value, source=f"{name} in {path}")
        return None


def env_folders(primus_root: Path | None) -> tuple[Path, ...]:
    """Where `.env` is looked for: working directory, the project it lies in, the Primus root, home."""
    here = Path.cwd()
    project = next(
        (folder for folder in (here, *here.parents) if (folder / ".git").exists() or (folder / "pyproject.toml").is_file()), None
    )
    folders = [here, project, primus_root, Path.home()]
    return tuple(folder for folder in folders if folder is not None)


def _model(flag: str | None, sources: _Sources, agent: AgentSettings, where: str) -> _Found:
    found = _Found(value=flag, source="--llm-model") if flag else sources.find((LLM_MODEL,))
    if found is None:
        in_file = agent.llm.model
        found = _Found(value=in_file, source=f"{where} agent.llm.model") if in_file else _Found(value=DEFAULT_MODEL, source="the default")
    if not _MODEL.match(found.value):
        raise NoLanguageModelError(
            f"model {found.value[:80]!r} names no provider", where=found.source, remedy="write PROVIDER/NAME, for example openai/gpt-4o"
        )
    return found


def _base_url(flag: str | None, provider: str, sources: _Sources, agent: AgentSettings, where: str) -> _Found | None:
    found = _Found(value=flag, source="--llm-base-url") if flag else sources.find(_BASES.get(provider, ()))
    if found is None and agent.llm.base_url:
        found = _Found(value=agent.llm.base_url, source=f"{where} agent.llm.base_url")
    if found is not None and (fault := _url_fault(found.value)) is not None:
        raise NoLanguageModelError(fault, where=found.source, remedy="write for example http://127.0.0.1:11434/v1")
    return found


def _url_fault(url: str) -> str | None:
    """Why an address cannot be an endpoint: clients append a path to it, and put what it hides into their messages."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "is not an http(s) URL"
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "is not an http(s) URL"
    if parts.username is not None or parts.query or parts.fragment:
        return "holds a user, a password or a query, which clients do not send; a key belongs in the provider's variable"
    return None


def _api_key(provider: str, base_url: _Found | None, sources: _Sources, agent: AgentSettings, where: str) -> tuple[str | None, str]:
    names = _KEYS.get(provider, ())
    if (found := sources.find(names)) is not None:
        return found.value, f"from {found.source}"
    if agent.llm.api_key is not None and (value := agent.llm.api_key.get_secret_value().strip()):
        return value, f"from {where} agent.llm.api_key"
    if base_url is not None or provider in _LOCAL:
        return NO_KEY_NEEDED, "not needed"
    if not names:
        return None, f"left to {provider}"
    raise NoLanguageModelError(
        f"no key for {provider}: {' or '.join(names)} is not set",
        remedy="set it in the environment or in a .env file, or set LLM_MODEL to a model that you can reach",
    )


def resolve_language_model(
    agent: AgentSettings,
    *,
    where: str = "the cluster file:",
    model: str | None = None,
    base_url: str | None = None,
    folders: Iterable[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> LanguageModel:
    """The model, its endpoint and its key. `model` and `base_url` are flags; `folders` may hold `.env`; `where` names the cluster file.

    Raises NoLanguageModelError (what is missing and the remedy).
    """
    sources = _Sources(os.environ if environment is None else environment, folders)
    chosen = _model(model, sources, agent, where)
    provider = chosen.value.partition("/")[0]
    endpoint = _base_url(base_url, provider, sources, agent, where)
    key, key_source = _api_key(provider, endpoint, sources, agent, where)
    return LanguageModel(
        model=chosen.value,
        base_url=endpoint.value if endpoint else None,
        api_key=key,
        engine=agent.llm.engine,
        sources={"model": chosen.source, "base_url": endpoint.source if endpoint else "", "api_key": key_source},
        extra={name: value for name, (value, _) in sources.files.items()} if key is None else {},
    )
