"""The target-cluster YAML: defaults of the guide, resolution of the hardware file, and one clear line for every mistake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster import make_cluster, parse_cluster, read_cluster
from primus_mcp.inputs.hardware_files import gpu_profile
from primus_mcp.projection.ops.backend import gemm_model
from primus_mcp.units import GIB

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "clusters"
HARDWARE = "hardware_config:\n  pod_bw: 25.0\n"


def _parse(document: dict[str, Any]) -> Any:
    return parse_cluster(document, where="cluster.yaml")


def test_an_empty_mapping_means_the_guide_s_defaults() -> None:
    target = _parse({"target_cluster": {}})
    assert (target.cluster.num_nodes, target.cluster.gpus_per_node, target.cluster.gpu.name) == (1, 8, "mi355x")
    assert target.cluster.memory_safety_margin == 0.10
    assert target.optimization.objective == "tokens_per_s_per_gpu"
    assert not target.benchmark_host.has_gpu
    budget = target.budget
    assert (budget.max_proposals, budget.max_perf_calls, budget.max_benchmark_calls, budget.max_rounds, budget.max_rlm_iterations) == (
        30,
        30,
        12,
        8,
        30,
    )
    assert (budget.max_llm_calls, budget.max_tokens, budget.max_usd, budget.max_wall_minutes) == (None, None, None, None)
    assert {name for name, on in target.axes.model_dump().items() if not on} == {"gbs", "overlap_grad_reduce"}


def test_the_memory_cap_defaults_to_what_the_gpu_really_has() -> None:
    for name, gib in (("mi300x", 191.98), ("mi355x", 287.98)):
        cluster = _parse({"target_cluster": {"gpu_arch": name}}).cluster
        assert cluster.hbm_bytes / GIB == pytest.approx(gib, abs=0.005)
        assert cluster.memory_cap_bytes == pytest.approx(0.9 * cluster.hbm_bytes)


def test_a_stated_capacity_is_taken_and_more_than_the_gpu_has_is_warned_about() -> None:
    assert _parse({"optimization": {"hbm_capacity_gb": 160}}).cluster.hbm_bytes == 160 * GIB
    assert "nominal" in _parse({"optimization": {"hbm_capacity_gb": 288.0}}).warnings[0]
    assert (
        "more than a mi300x has" in _parse({"target_cluster": {"gpu_arch": "mi300x"}, "optimization": {"hbm_capacity_gb": 288}}).warnings[0]
    )


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"target_cluster": {"gpu_clock_mhz": 9600}}, "gpu_clock_mhz is 4.00 times the boost clock of a mi355x"),
        ({"target_cluster": {"gpus_per_node": 16}}, "gpus_per_node 16 is more than the 8 GPUs that the node's links join"),
        ({"target_cluster": {"num_nodes": 2, "gpus_per_node": 16}}, "16 GPUs of a node share 8 NICs"),
        ({"available_for_benchmark": {"has_gpu": True}}, "has_gpu is true but benchmark_gpus is 0: nothing can be measured"),
    ],
)
def test_what_is_legal_and_hardly_meant_is_a_warning(document: dict[str, Any], told: str) -> None:
    assert told in _parse(document).warnings
    assert _parse({}).warnings == ()


def test_another_number_of_nodes_is_told_in_the_name(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("target_cluster: {name: mine, num_nodes: 4, gpu_arch: mi300x}\n", encoding="utf-8")
    for nodes, name in ((None, "mine"), (2, "mine_2nodes")):
        cluster = read_cluster(path, nodes=nodes).cluster
        assert (cluster.num_nodes, cluster.name) == (nodes or 4, name)


def test_an_architecture_name_says_which_gpu_it_chose() -> None:
    target = _parse({"target_cluster": {"gpu_arch": "gfx950"}})
    assert target.cluster.gpu.name == "mi355x"
    assert target.warnings == ("gpu_arch gfx950 names several GPUs; mi355x is taken",)


def test_the_clock_scales_the_sustained_rates() -> None:
    cluster = _parse({"target_cluster": {"gpu_clock_mhz": 1800}}).cluster
    assert cluster.clock_ratio == pytest.approx(1800 / 2400)
    stock = gemm_model(make_cluster("mi355x"), "roofline").seconds(8192, 8192, 8192, "bf16")
    assert gemm_model(cluster, "roofline").seconds(8192, 8192, 8192, "bf16") == pytest.approx(stock * 2400 / 1800)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"target_cluster": {"num_nodess": 3}}, r"unknown key target_cluster.num_nodess; did you mean num_nodes\?"),
    ({"optimisation": {}}, r"unknown key optimisation; did you mean optimization\?"),
    ({"optimization": {"budget": {"max_proposal": 3}}}, r"unknown key optimization.budget.max_proposal; did you mean max_proposals\?"),
    ({"optimization": {"axes": {"tpp": True}}}, r"unknown key optimization.axes.tpp; did you mean tp\?"),
    ({"target_cluster": {"num_nodes": 0}}, "target_cluster.num_nodes = 0: .*at least 1"),
    ({"target_cluster": {"num_nodes": -4}}, "target_cluster.num_nodes = -4: .*at least 1"),
    ({"target_cluster": {"num_nodes": 1_000_001}}, "target_cluster.num_nodes = 1000001: .*at most 1000000"),
    ({"target_cluster": {"num_nodes": True}}, "target_cluster.num_nodes = True: .*whole number"),
    ({"target_cluster": {"num_nodes": "four"}}, "target_cluster.num_nodes = 'four': .*whole number"),
    ({"target_cluster": {"num_nodes": 4.5}}, "target_cluster.num_nodes = 4.5: .*whole number"),
    ({"target_cluster": {"gpus_per_node": 3}}, "target_cluster.gpus_per_node = 3: .*power of two"),
    ({"target_cluster": {"gpus_per_node": 128}}, "target_cluster.gpus_per_node = 128: .*at most 72"),
    ({"target_cluster": {"gpu_arch": "mi355"}}, r"gpu_arch: unknown GPU 'mi355'; did you mean mi355x\? known: "),
    ({"target_cluster": {"gpu_clock_mhz": float("nan")}}, "target_cluster.gpu_clock_mhz = nan: .*"),
    ({"target_cluster": {"gpu_clock_mhz": -1}}, "target_cluster.gpu_clock_mhz = -1: .*at least 100"),
    ({"target_cluster": {"name": "../../etc"}}, "target_cluster.name = '../../etc'"),
    ({"target_cluster": None}, "target_cluster = None: .*key: value"),
    ({"target_cluster": {"price": 3}}, "target_cluster.price = 3: is no block of keys; .*key: value.*: usd_per_gpu_hour, source, date"),
    ({"target_cluster": []}, r"target_cluster = \[\]: .*key: value"),
    ({"optimization": {"memory_safety_margin": 1.0}}, "optimization.memory_safety_margin = 1.0: .*less than 1"),
    ({"optimization": {"memory_safety_margin": True}}, "optimization.memory_safety_margin = True: is true or false"),
    ({"optimization": {"hbm_capacity_gb": float("inf")}}, "optimization.hbm_capacity_gb = inf"),
    ({"optimization": {"hbm_capacity_gb": "lots"}}, "optimization.hbm_capacity_gb = 'lots': is not a number"),
    ({"optimization": {"objective": "mfu"}}, "optimization.objective = 'mfu': .*'tokens_per_s_per_gpu'"),
    ({"optimization": {"axes": {"tp": "yes please"}}}, "optimization.axes.tp = 'yes please': .*true or false"),
    ({"optimization": {"budget": {"max_usd": -1}}}, "optimization.budget.max_usd = -1: .*at least 0"),
    ({"available_for_benchmark": {"benchmark_arch": "h10"}}, r"unknown GPU 'h10'; did you mean h100\?"),
    ({"agent": {"prompt_extras": "be quick"}}, "agent.prompt_extras = 'be quick': .*a list"),
    (
        {"target_cluster": {"hardware_config": "nope.yaml"}},
        "hardware_config = 'nope.yaml': not found; looked at .*nope.yaml.*; give the path",
    ),
]


@pytest.mark.parametrize(("document", "expected"), MISTAKES)
def test_a_mistake_is_one_line_with_file_field_value_and_remedy(document: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        _parse(document)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("cluster.yaml")


def test_an_api_key_is_never_written_shown_or_quoted_in_an_error() -> None:
    secret = "sk-very-secret"
    target = _parse({"agent": {"llm": {"api_key": secret, "model": "openai/some-model"}}})
    key = target.agent.llm.api_key
    assert key is not None
    assert key.get_secret_value() == secret
    for shown in (repr(target), str(target.file), target.file.model_dump_json(), repr(target.file.model_dump())):
        assert secret not in shown
    for document in (
        {"agent": {"llm": {"api_key": [secret]}}},
        {"agent": {"llm": {"apikey": secret}}},
        {"agent": {"llm": {"api_key": {"x": secret}}}},
    ):
        with pytest.raises(InputError) as caught:
            _parse(document)
        assert secret not in str(caught.value)


# ---- the hardware file
def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_the_hardware_file_is_found_beside_the_cluster_file_first(tmp_path: Path) -> None:
    _write(tmp_path / "site" / "fabric.yaml", HARDWARE)
    cluster = _write(tmp_path / "site" / "cluster.yaml", "target_cluster:\n  hardware_config: fabric.yaml\n")
    target = read_cluster(cluster)
    assert target.hardware_config_path == tmp_path / "site" / "fabric.yaml"
    assert target.cluster.network.nic_bandwidth_bytes_per_s == 25e9
    assert target.cluster.network.node_bandwidth_bytes_per_s == gpu_profile("mi355x").network.node_bandwidth_bytes_per_s


def test_the_hardware_file_is_found_in_the_primus_checkout_around_the_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "checkout" / "primus" / "configs").mkdir(parents=True)
    found = _write(tmp_path / "checkout" / "examples" / "hardware_configs" / "x.yaml", HARDWARE)
    cluster = _write(
        tmp_path / "checkout" / "examples" / "agents" / "cluster.yaml",
        "target_cluster:\n  hardware_config: examples/hardware_configs/x.yaml\n",
    )
    assert read_cluster(cluster).hardware_config_path == found


def test_the_hardware_file_is_found_in_the_working_directory_and_the_primus_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = _write(tmp_path / "a" / "cluster.yaml", "target_cluster:\n  hardware_config: net.yaml\n")
    in_root = _write(tmp_path / "root" / "net.yaml", HARDWARE)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert read_cluster(cluster, primus_root=tmp_path / "root").hardware_config_path == in_root
    in_work = _write(tmp_path / "work" / "net.yaml", HARDWARE)
    assert read_cluster(cluster, primus_root=tmp_path / "root").hardware_config_path == in_work


def test_a_missing_hardware_file_lists_every_place_that_was_searched(tmp_path: Path) -> None:
    cluster = _write(tmp_path / "a" / "cluster.yaml", "target_cluster:\n  hardware_config: net.yaml\n")
    with pytest.raises(InputError) as caught:
        read_cluster(cluster, primus_root=tmp_path / "root")
    for place in (tmp_path / "a", Path.cwd(), tmp_path / "root"):
        assert os.fspath(place / "net.yaml") in str(caught.value)


def test_a_file_that_is_missing_or_no_mapping_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_cluster(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=r"instead of `key: value` lines"):
        read_cluster(_write(tmp_path / "list.yaml", "- 1\n"))


# ---- shipped and foreign files
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_example_reads_without_warnings(path: Path) -> None:
    target = read_cluster(path)
    assert target.warnings == ()
    assert target.cluster.name == path.stem


def test_the_shipped_examples_cover_one_four_and_thirty_two_nodes() -> None:
    clusters = [read_cluster(path).cluster for path in EXAMPLES.glob("*.yaml")]
    assert {(cluster.gpu.name, cluster.num_nodes) for cluster in clusters} >= {("mi355x", 1), ("mi355x", 4), ("mi355x", 32), ("mi300x", 4)}


def test_primus_s_own_example_cluster_reads(shared: Path) -> None:
    target = read_cluster(shared / "primus/examples/agents/tuning_agent/target_cluster_mi355x_4nodes.yaml")
    assert target.cluster.world_size == 32
    assert target.hardware_config_path == shared / "primus/examples/hardware_configs/mi355x.yaml"
    assert (target.budget.max_proposals, target.budget.max_rounds, target.budget.max_rlm_iterations) == (0, 0, 30)
    assert target.benchmark_host.has_gpu
    assert target.cluster.network.pod_size == 64
