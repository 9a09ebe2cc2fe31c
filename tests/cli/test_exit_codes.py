"""One rule of exit codes over all commands: 0 may be run, 1 internal, 2 bad input, 3 nothing legal fits, 4 stopped early."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_cases import run

from primus_mcp.cli.codes import EPILOG, EXIT_BAD_INPUT, EXIT_NOTHING_FITS, EXIT_OK, MEANINGS, verdict_code
from primus_mcp.cli.main import COMMANDS
from primus_mcp.projection.memory import WORDS

PLACE = ["--gpu", "mi355x", "--nodes", "4", "--gemm-backend", "roofline"]
MIXTRAL = ["--model", "mixtral_8x22B_v0.1", *PLACE, "--set", "mbs=1", "--set", "pp=4", "--set", "ep=8", "--set", "tp=1"]
DENSE = ["--model", "llama3.1_70B", *PLACE, "--set", "tp=8"]
PRICING = ("evaluate", "memory", "performance", "both")
CASES = {
    "fits": ([*DENSE, "--set", "mbs=2"], EXIT_OK),
    "over cap": ([*MIXTRAL, "--set", "vpp=2"], EXIT_NOTHING_FITS),
    "too large": ([*DENSE, "--set", "mbs=16"], EXIT_NOTHING_FITS),
    "illegal": ([*DENSE, "--set", "cp=3"], EXIT_NOTHING_FITS),
    "unknown knob": ([*DENSE, "--set", "nope=3"], EXIT_BAD_INPUT),
}


@pytest.mark.parametrize("command", PRICING)
@pytest.mark.parametrize("case", list(CASES))
def test_every_command_that_prices_a_configuration_ends_with_the_code_of_its_verdict(
    command: str, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, expected = CASES[case]
    code, out, err = run(capsys, command, *words)
    assert code == expected
    assert case not in ("over cap", "too large") or case in out
    assert expected != EXIT_BAD_INPUT or (err.startswith("error: ") and err.count("\n") == 1)


def test_one_cluster_of_several_that_fits_is_enough_as_in_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--model", "llama3.1_70B", "--gpu", "mi300x", "--gemm-backend", "roofline", "--set", "tp=8", "--set", "mbs=1"]
    codes = {nodes: run(capsys, "memory", *sizes, "--nodes", nodes)[0] for nodes in ("1", "8", "1,8")}
    assert codes == {"1": EXIT_NOTHING_FITS, "8": EXIT_OK, "1,8": EXIT_OK}


def test_search_and_single_answer_agree_where_nothing_is_legal(capsys: pytest.CaptureFixture[str]) -> None:
    none = ["--model", "llama3_8B", "--gpu", "mi300x", "--nodes", "101", "--gbs", "3"]
    for command in (["sweep"], ["tune", "--seed-only"], ["evaluate"]):
        code, _, err = run(capsys, *command, *none)
        assert code == EXIT_NOTHING_FITS and "no legal configuration on 808 GPUs has a batch of 3" in err


def test_where_nothing_fits_the_answer_says_how_many_nodes_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    none = ["--model", "llama3.1_405B", "--gpu", "mi300x", "--nodes", "2", "--gemm-backend", "roofline"]
    for command in (
        ["sweep", "--no-cache", "--jobs", "1"],
        ["tune", "--seed-only", "--no-cache", "--out-dir", str(tmp_path)],
        ["evaluate"],
    ):
        code, out, _ = run(capsys, *command, *none)
        assert code == EXIT_NOTHING_FITS and "6 nodes are enough: TP8 PP6" in out
    assert "it is not known how many nodes" in run(capsys, "sweep", "--no-cache", "--jobs", "1", *none, "--where", "tp<=2")[1]
    code, out, _ = run(capsys, "evaluate", *none, "--set", "tp=8", "--set", "pp=4", "--json")
    assert code == EXIT_NOTHING_FITS and '"code": "more_nodes"' in out and '"legal": false' in out


def test_within_the_cap_is_what_a_script_may_go_on_with() -> None:
    assert {word: verdict_code([word]) for word in WORDS} == {"fits": 0, "at risk": 0, "over cap": 3, "too large": 3}
    assert verdict_code(["illegal"]) == verdict_code([None]) == verdict_code([]) == EXIT_NOTHING_FITS


@pytest.mark.parametrize("command", list(COMMANDS))
def test_the_help_of_every_command_says_what_each_code_means(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0 and EPILOG in " ".join(out.split()) and list(MEANINGS) == [0, 1, 2, 3, 4]


def test_the_page_of_messages_has_the_same_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert all(f"| {code} | {meaning} |" in page for code, meaning in MEANINGS.items())
