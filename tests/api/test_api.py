"""The programming interface: what docs/api.md shows runs, answers equal the command line's, errors are of one family."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import primus_mcp
from primus_mcp import api
from primus_mcp.inputs.model_workload import workload_from_model
from primus_mcp.reports.schemas import SUMMARY_SCHEMA, TRIAL_LINE_SCHEMA, summary_schema, trial_line_schema
from primus_mcp.reports.summary import Summary
from primus_mcp.trials.log import TrialRecord

DOCUMENT = Path(__file__).parents[2] / "docs" / "api.md"
BLOCKS = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=[code.splitlines()[-1][:40] for code in BLOCKS])
def test_every_example_of_the_document_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(DOCUMENT), "exec"), {})
    assert list(tmp_path.iterdir()) == []


def test_importing_the_package_imports_none_of_its_rooms() -> None:
    code = "import sys, primus_mcp; print(sorted(name for name in sys.modules if name.startswith('primus_mcp.')), dir(primus_mcp))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("[] ")
    assert "tune" in said


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tone'"):
        _ = primus_mcp.tone


def test_the_public_names_are_typed_and_there() -> None:
    assert (Path(primus_mcp.__file__).parent / "py.typed").is_file()
    for name in primus_mcp.__all__:
        assert getattr(primus_mcp, name) is not None


def test_a_name_a_file_and_a_record_are_the_same_workload(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    workload = workload_from_model("llama3_8B")
    file.write_text(yaml.safe_dump(dict(workload.document)), encoding="utf-8")
    answers = [
        primus_mcp.evaluate(source, "mi300x", {"tp": 8}, gemm_backend="roofline").tokens_per_s_per_gpu
        for source in ("llama3_8B", str(file), file, workload)
    ]
    assert len(set(answers)) == 1
    assert answers[0]


def test_a_cluster_file_and_a_gpu_with_nodes_are_the_same_cluster(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("target_cluster: {gpu_arch: mi300x, num_nodes: 2}\n", encoding="utf-8")
    assert api.resolve_cluster(file).cluster == api.resolve_cluster("mi300x", nodes=2).cluster
    assert api.resolve_cluster(str(file)).cluster.world_size == 16


@pytest.mark.parametrize(
    ("workload", "cluster", "options"),
    [
        ("lama3", "mi300x", {}),
        ("llama3_8B", "mi3000", {}),
        ("gone.yaml", "mi300x", {}),
        ("llama3_8B", "gone.yaml", {}),
        ("gone.yaml", "mi300x", {"seq_length": 8}),
        ("llama3_8B", "gone.yaml", {"nodes": 2}),
        ("llama3_8B", "mi300x", {"nodes": 0}),
        ("llama3_8B", "mi300x", {"nodes": "two"}),
        ("llama3_8B", "mi300x", {"gpus_per_node": 3}),
        ("llama3_8B", "mi300x", {"gbs": 0}),
    ],
)
def test_every_wrong_input_is_one_line_of_the_error_family(workload: str, cluster: str, options: dict[str, int]) -> None:
    with pytest.raises(primus_mcp.PrimusMcpError) as caught:
        primus_mcp.axes(workload, cluster, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "word"), [(api.evaluate, "pins"), (api.axes, "gemm_backend"), (api.problem, "node"), (api.tune, "knobs")]
)
def test_a_keyword_that_a_function_does_not_have_is_refused(function: Callable[..., object], word: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{word}'"):
        function("llama3_8B", "mi300x", **{word: None})


def test_a_single_evaluation_is_judged_by_the_trainer_alone_and_warns_of_a_policy() -> None:
    result = primus_mcp.evaluate("llama3_8B", "mi300x", {"mbs": 32}, gemm_backend="roofline")
    assert result.legal and "policy" in {warning.code for warning in result.warnings}
    assert not primus_mcp.evaluate("llama3_8B", "mi300x", {"tp": 3}, gemm_backend="roofline").legal


def test_tune_writes_artefacts_that_obey_the_shipped_schemas_and_continues(tmp_path: Path) -> None:
    def search() -> api.Outcome:
        return primus_mcp.tune("llama3_8B", "mi300x", out_dir=tmp_path / "run", seed_budget=2, gemm_backend="roofline", pins={"tp": 2})

    first = search()
    trials = len(first.session.history())
    assert first.best is not None
    assert first.best.resolved is not None
    assert first.best.resolved["tp"] == 2
    assert len(search().session.history()) == trials
    written = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert Summary.model_validate(written)
    assert set(written) == set(summary_schema()["properties"])
    for line in (tmp_path / "run" / "trials.jsonl").read_text(encoding="utf-8").splitlines():
        TrialRecord.model_validate_json(line)


def test_the_shipped_schemas_are_those_of_the_records() -> None:
    for path, schema in ((SUMMARY_SCHEMA, summary_schema()), (TRIAL_LINE_SCHEMA, trial_line_schema())):
        assert json.loads(path.read_text(encoding="utf-8")) == schema, "run: python -m primus_mcp.reports.schemas"
