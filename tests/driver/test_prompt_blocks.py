"""Prompts: prose by hand, knobs and tools from the registries."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from driver_cases import open_session

from primus_mcp.driver.prompts import planner_instructions, search_instructions, where_it_stands
from primus_mcp.errors import InputError
from primus_mcp.space.knobs import KNOBS
from primus_mcp.tools import LlmReply, ToolContext, bind
from primus_mcp.tools.notes import Expert
from primus_mcp.tools.prompt_blocks import BLOCKS, search_tools, update_prompts, with_blocks, without_marks

PROMPTS = Path(__file__).parents[2] / "prompts"
EXPERTS = ("memory", "moe", "network", "schedule")


@pytest.mark.parametrize("path", sorted(PROMPTS.rglob("*.md")), ids=lambda path: path.stem)
def test_generated_blocks_are_current_run_python_m_primus_mcp_tools_prompt_blocks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert with_blocks(text) == text
    assert text.count("<!-- begin ") == text.count("<!-- end ")


def test_a_block_is_made_anew_and_nothing_else_is_touched(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "x.md"
    file.parent.mkdir()
    file.write_text("before\n<!-- begin knob_names -->\nold\n<!-- end knob_names -->\nafter\n", encoding="utf-8")
    update_prompts(tmp_path)
    assert without_marks(file.read_text(encoding="utf-8")) == f"before\n{BLOCKS['knob_names']()}\nafter\n"


def test_the_planner_knows_every_knob_and_tool_the_guide_and_what_the_user_adds() -> None:
    text = planner_instructions(["keep EP in a node"])
    assert all(f"- `{name}`" in text for name in KNOBS)
    assert all(f"- `{name}(" in text for name in search_tools())
    assert "How to tune a training configuration" in text
    assert text.endswith("From the user:\n- keep EP in a node")
    assert "<!--" not in text


def test_a_round_knows_how_it_works_here_where_it_stands_and_whether_it_can_measure() -> None:
    text = search_instructions("rlm", ("evaluate_simulate",), ["our own rule"])
    assert "Python REPL" in text
    assert "there is no evaluate_with_benchmark" in text
    assert text.endswith("From the user:\n- our own rule")
    assert where_it_stands("12 trials so far").endswith("12 trials so far")
    measuring = search_instructions("react", ("evaluate_with_benchmark",), [])
    assert "one tool at a time" in measuring
    assert "there is no evaluate" not in measuring


def test_every_expert_is_there() -> None:
    assert tuple(sorted(path.stem for path in (PROMPTS / "experts").glob("*.md"))) == EXPERTS
    assert get_args(Expert) == ("", *EXPERTS)


def test_an_expert_answers_with_its_text_before_the_callers_and_a_failed_question_is_counted(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    def ask(prompt: str, system: str) -> LlmReply:
        asked.append((prompt, system))
        if prompt == "fail":
            raise InputError("no answer")
        return LlmReply(model="m", text="42", input_tokens=3, output_tokens=1)

    session = open_session(tmp_path, mode="dry")
    query = bind(ToolContext(session=session, ask_llm=ask))["query_llm"]
    assert query("why?", expert="moe", system="short").model_dump()["reply"] == "42"
    assert asked[0][1].startswith("You are an expert in training mixture-of-experts")
    assert asked[0][1].endswith("short")
    with pytest.raises(InputError):
        query("fail")
    spent = {row.name: row.spent for row in session.spending()}
    assert (spent["max_llm_calls"], spent["max_tokens"]) == (2, 4)
