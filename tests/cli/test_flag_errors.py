"""Every error names the flag that was typed, and no flag asks for work or memory without a limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_cases import run

DENSE = ("--model", "llama3.1_8B", "--gemm-backend", "roofline")
ON = (*DENSE, "--gpu", "mi300x")
SMALL = ("sweep", *DENSE, "--axes", "mbs", "--no-cache", "--json", "--jobs", "1", "--top", "1")


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("evaluate", "--workload", "absent.yaml", "--gpu", "mi300x"), "--workload absent.yaml: "),
        (("memory", "--exp", "absent.yaml", "--gpu", "mi300x"), "--exp absent.yaml: "),
        (("evaluate", *DENSE, "--target-cluster", "absent.yaml"), "--target-cluster absent.yaml: "),
        (("sweep", *DENSE, "--target-cluster=absent.yaml"), "--target-cluster absent.yaml: "),
        (("tune", "--hf", "absent.json", "--gpu", "mi300x"), "--hf absent.json: "),
        (("evaluate", *ON, "--primus-root", "absent"), "--primus-root absent: "),
        (("evaluate", *ON, "--calibration", "absent.json"), "--calibration absent.json: "),
        (("evaluate", *ON, "--profiling-mode", "both", "--load-benchmark", "absent.json"), "--load-benchmark absent.json: "),
        (("performance", *ON, "--hardware-config", "absent.yaml"), "--hardware-config absent.yaml: "),
        (("performance", *ON, "--plot", "absent/x.png"), "--plot: "),
        (("performance", *ON, "--trace", "absent/x.json"), "--trace: "),
        (("performance", *DENSE, "--arch", "mi30x"), "--arch: "),
        (("performance", *ON, "--gpus-per-node", "5"), "--gpus-per-node: 5"),
        (("evaluate", *ON, "--gpus-per-node", "5"), "--gpus-per-node: 5"),
        (("performance", *ON, "--gpu-clock-mhz", "5"), "--gpu-clock-mhz: 5"),
        (("performance", *ON, "--nodes", "2000000"), "--nodes: "),
        (("performance", *ON, "--target-num-nodes", "0"), "--target-num-nodes: "),
        (("performance", *ON, "--profile", "nope"), "--profile: "),
        (("sweep", *ON, "--nodes", "2000000"), "--nodes: "),
        (("validate", "--rows", "absent.jsonl"), "--rows absent.jsonl: "),
        (("calibrate", "--rows", "absent.jsonl", "--gpu", "mi300x"), "--rows absent.jsonl: "),
        (("detect", "--from", "absent.txt", "also.txt"), "--from absent.txt: "),
        (("gpus", "--check", "absent.yaml"), "--check absent.yaml: "),
        (("convert", "--megatron", "absent.sh"), "--megatron absent.sh: "),
        (("report", "absent"), "absent"),
    ],
    ids=lambda value: " ".join(value)[-50:] if isinstance(value, tuple) else "",
)
def test_an_error_names_the_flag_that_was_typed(
    words: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(capsys, *words)
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(said) == 1 and said[0].startswith(f"error: {flag}"), err


def test_a_gpu_that_the_environment_names_is_told_under_the_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRIMUS_GPU_ARCH", "mi30x")
    code, _, err = run(capsys, "performance", *DENSE)
    assert code == 2 and err.startswith("error: PRIMUS_GPU_ARCH: ")
    monkeypatch.setenv("PRIMUS_GPU_ARCH", "mi300x")
    monkeypatch.setenv("PRIMUS_GPU_CLOCK_MHZ", "5")
    code, _, err = run(capsys, "performance", *DENSE)
    assert code == 2 and err.splitlines()[-1].startswith("error: PRIMUS_GPU_CLOCK_MHZ: ")


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        (("sweep", *ON, "--top", "100000000"), "1,000"),
        (("sweep", *ON, "--jobs", "100000000"), "between 1 and"),
        (("tune", *ON, "--jobs", "100000000"), "between 1 and"),
        (("sweep", *ON, "--nodes", ",".join(str(n) for n in range(1, 500))), "at most 64"),
        (("sweep", *ON, "--gpu", ",".join(f"g{n}" for n in range(500))), "at most 64"),
        (("sweep", *DENSE, "--gpu", "mi300x,mi325x,mi355x", "--nodes", ",".join(str(n) for n in range(1, 40))), "at most 64"),
        (("performance", *ON, "--nodes", ",".join(str(n) for n in range(1, 500))), "at most 64"),
        (("detect", "--nodes", "1000000000"), "1,000,000"),
        (("evaluate", *ON, "--nodes", "1000000000"), "1,000,000"),
        (("benchmark", *ON, "--repeats", "1000000000"), "10,000"),
        (("benchmark", *ON, "--limit-minutes", "1e300"), "525,600"),
        (("benchmark", *ON, "--benchmark-gpus", "1000000000"), "1,024"),
        (("serve", "--http", "--port", "70000"), "65,535"),
        (("serve", "--http", "--max-sessions", "1000000000"), "10,000"),
        (("serve", "--http", "--requests-per-minute", "0"), "between 1 and"),
        (("evaluate", *ON, "--gbs", "9" * 4000), "1,000,000,000"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else "",
)
def test_a_count_beyond_its_limit_is_one_line_with_the_limit(
    words: tuple[str, ...], limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = tuple(word for index, word in enumerate(words) if not (word == "--gpu" and "--gpu" in words[index + 1 :]))
    words = tuple(word for index, word in enumerate(words) if not (word == "mi300x" and words[index - 1] == "roofline"))
    code, out, err = run(capsys, *words)
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert code == 2 and out == "" and len(said) == 1 and limit in said[0] and len(said[0]) < 300, err


def test_two_names_of_one_gpu_and_a_size_given_twice_are_one_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL, "--gpu", "mi300x,MI300X,gfx942,Mi300x", "--nodes", "1,1,01")
    assert code == 0 and [one["cluster"] for one in json.loads(out)["sweeps"]] == ["mi300x_1nodes"]
    code, out, _ = run(capsys, "performance", *DENSE, "--gpu", "mi300x,MI300X", "--nodes", "1,1", "--json")
    assert code == 3 and isinstance(json.loads(out), dict)
    code, out, _ = run(capsys, "performance", *DENSE, "--gpu", "mi300x,mi355x", "--nodes", "1,2,1", "--json")
    assert code == 0 and len(json.loads(out)) == 4
