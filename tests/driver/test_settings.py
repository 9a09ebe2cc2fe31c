"""Which language model: flag > environment > .env > cluster YAML > default; secrets never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from primus_mcp.driver.dotenv import parse_dotenv, read_dotenv
from primus_mcp.driver.settings import (
    DEFAULT_MODEL,
    NO_KEY_NEEDED,
    NoLanguageModelError,
    env_folders,
    resolve_language_model,
    without_credentials,
)
from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster_file import AgentSettings

SECRET = "sk-0123456789"


def agent(**llm: str) -> AgentSettings:
    return AgentSettings.model_validate({"llm": llm})


def test_a_flag_beats_the_environment_which_beats_a_file_which_beats_the_cluster_yaml_which_beats_the_default(tmp_path: Path) -> None:
    key = {"OPENAI_API_KEY": SECRET}
    (tmp_path / ".env").write_text("LLM_MODEL=openai/of-the-file\n")
    settings = agent(model="openai/of-the-cluster")

    def model(flag: str | None, environment: dict[str, str], folders: list[Path], found: AgentSettings) -> str:
        return resolve_language_model(found, model=flag, environment={**key, **environment}, folders=folders).model

    env = {"LLM_MODEL": "openai/of-the-environment"}
    assert model("openai/of-the-flag", env, [tmp_path], settings) == "openai/of-the-flag"
    assert model(None, env, [tmp_path], settings) == "openai/of-the-environment"
    assert model(None, {}, [tmp_path], settings) == "openai/of-the-file"
    assert model(None, {}, [], settings) == "openai/of-the-cluster"
    assert model(None, {}, [], agent()) == DEFAULT_MODEL
    assert model(None, {"LLM_MODEL": "  "}, [], agent()) == DEFAULT_MODEL


def test_the_first_folder_that_has_a_name_wins_and_the_environment_wins_over_all(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, text in ((one, "OPENAI_API_KEY=first\n"), (two, "OPENAI_API_KEY=second\nOPENAI_API_BASE=http://two:1/v1\n")):
        folder.mkdir()
        (folder / ".env").write_text(text)
    found = resolve_language_model(agent(), environment={}, folders=[one, two])
    assert (found.api_key, found.base_url) == ("first", "http://two:1/v1")
    found = resolve_language_model(agent(), environment={"OPENAI_API_KEY": "mine"}, folders=[one, two])
    assert found.api_key == "mine"


def test_no_secret_is_in_any_text_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"AWS_SECRET_ACCESS_KEY={SECRET}\n")
    for found in (
        resolve_language_model(agent(api_key=SECRET), environment={}),
        resolve_language_model(agent(), environment={"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "http://host:1/v1"}),
        resolve_language_model(agent(), model="bedrock/claude", environment={}, folders=[tmp_path]),
    ):
        assert SECRET not in repr(found)
        assert SECRET not in str(found)
        assert SECRET not in found.text
    assert found.extra == {"AWS_SECRET_ACCESS_KEY": SECRET}
    assert without_credentials("http://user:pass@[::1]:8080/v1?key=1#x") == "http://[::1]:8080/v1"


def test_a_missing_key_names_the_variable_and_an_own_endpoint_needs_none() -> None:
    with pytest.raises(NoLanguageModelError, match=r"OPENAI_API_KEY is not set; set it in the environment or in a \.env file"):
        resolve_language_model(agent(), environment={})
    with pytest.raises(NoLanguageModelError, match="ANTHROPIC_API_KEY"):
        resolve_language_model(agent(model="anthropic/claude"), environment={"OPENAI_API_KEY": SECRET})
    for base in ("OPENAI_API_BASE", "OPENAI_BASE_URL"):
        found = resolve_language_model(agent(model="openai/llama3"), environment={base: "http://localhost:11434/v1"})
        assert (found.base_url, found.api_key) == ("http://localhost:11434/v1", NO_KEY_NEEDED)
    assert resolve_language_model(agent(), model="ollama_chat/qwen3", environment={}).api_key == NO_KEY_NEEDED
    assert resolve_language_model(agent(), model="vertex_ai/gemini", environment={}).api_key is None


@pytest.mark.parametrize("url", [f"http://me:{SECRET}@host:1/v1", f"https://host/v1?k={SECRET}", f"https://host/v1#{SECRET}"])
def test_an_endpoint_that_hides_something_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(NoLanguageModelError, match=r"OPENAI_BASE_URL in the environment.* holds a user, a password or a query") as caught:
        resolve_language_model(agent(), environment={"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": url})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "flags", "message"),
    [
        ({"model": "gpt-4o"}, {}, "names no provider"),
        ({}, {"model": "openai/"}, "names no provider"),
        ({}, {"base_url": "localhost:11434"}, "is not an http"),
        ({}, {"base_url": "http://host:port/v1"}, "is not an http"),
        ({}, {"base_url": "http://[::1/v1"}, "is not an http"),
        ({"base_url": "ftp://host/v1"}, {}, "is not an http"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(settings: dict[str, str], flags: dict[str, str], message: str) -> None:
    with pytest.raises(NoLanguageModelError, match=message):
        resolve_language_model(agent(**settings), environment={"OPENAI_API_KEY": SECRET}, **flags)  # type: ignore[arg-type]


def test_lines_of_a_dotenv_file_are_read_as_shells_and_other_readers_do() -> None:
    text = (
        '\ufeff# comment\n\nexport A=1\nB = two words # comment\nC=\'single # kept \\n\'\nD="double\\nline \\"q\\"" # comment\n'
        "E=\nF=#all comment\nG=a#b\nnot an assignment\n1X=2\nH='unclosed\nA=last\n"
    )
    assert parse_dotenv(text) == {
        "A": "last", "B": "two words", "C": "single # kept \\n", "D": 'double\nline "q"', "E": "", "F": "", "G": "a#b", "H": "'unclosed",
    }  # fmt: skip


def test_a_dotenv_that_is_no_text_file_is_refused_without_its_content(tmp_path: Path) -> None:
    assert read_dotenv(tmp_path / ".env") == {}
    (tmp_path / ".env").write_bytes(SECRET.encode() * 20_000)
    with pytest.raises(InputError) as caught:
        read_dotenv(tmp_path / ".env")
    assert SECRET not in str(caught.value)


def test_dotenv_is_looked_for_in_the_working_directory_the_project_the_primus_root_and_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    (project / "deep").mkdir(parents=True)
    (project / "pyproject.toml").touch()
    monkeypatch.chdir(project / "deep")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    assert env_folders(tmp_path / "Primus") == (project / "deep", project, tmp_path / "Primus", home)
