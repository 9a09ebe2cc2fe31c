"""How many nodes are enough, where nothing fits."""

from __future__ import annotations

from dataclasses import replace

import pytest

import primus_mcp
from primus_mcp.evaluation.evaluators import FullEvaluator
from primus_mcp.inputs.cluster_file import MAX_NODES
from primus_mcp.search.enough_nodes import enough_nodes, enough_nodes_for, enough_of, nodes_text_for
from primus_mcp.search.sweep import sweep
from primus_mcp.space.adapted import adapt_baseline
from primus_mcp.space.knobs import TrialConfig


def _problem(model: str, gpu: str, nodes: int, **how: object) -> primus_mcp.api.Problem:
    return primus_mcp.problem(model, gpu, nodes=nodes, gemm_backend="roofline", **how)  # type: ignore[arg-type]


@pytest.mark.parametrize(("model", "gpu", "nodes"), [("mixtral_8x22B_v0.1", "mi300x", 1), ("llama3.1_405B", "h100", 2)])
def test_a_sweep_agrees_that_so_many_nodes_do_and_one_less_does_not(model: str, gpu: str, nodes: int) -> None:
    found = enough_nodes(_problem(model, gpu, nodes).rules, start=nodes)
    assert found.nodes is not None and found.nodes > nodes and found.held is not None and found.held.memory_bytes <= found.held.cap_bytes
    below = _problem(model, gpu, found.nodes - 1).evaluator
    assert isinstance(below, FullEvaluator) and not sweep(below, gemm_backend="roofline").top


def test_what_is_said_to_do_is_priced_the_same_by_the_evaluator() -> None:
    problem = _problem("deepseek_v3", "mi300x", 2)
    found = enough_nodes(problem.rules)
    assert found.nodes is not None and found.held is not None
    cluster = replace(problem.rules.cluster, num_nodes=found.nodes)
    workload = adapt_baseline(problem.rules.workload, cluster).workload
    evaluator = FullEvaluator(replace(problem.rules, cluster=cluster, workload=workload), gemm_backend="roofline")
    c = found.held.config
    knobs = {"tp": c.tp, "pp": c.pp, "ep": c.ep, "cp": c.cp, "vpp": c.vpp, "mbs": c.mbs, "expert_tensor_parallel_size": c.etp}
    trial = TrialConfig.model_validate({**knobs, "recompute_granularity": "full", "gbs": c.gbs})
    result = evaluator.evaluate(trial)
    assert result.within_margin and result.memory_per_gpu_gb == pytest.approx(found.held.memory_bytes / 2**30)


def test_pins_hold_on_other_sizes_too() -> None:
    found = enough_nodes(_problem("llama3.1_70B", "mi300x", 1, pins={"tp": 8, "pp": 4}).rules)
    assert found.nodes == 4 and found.held is not None and (found.held.config.tp, found.held.config.pp) == (8, 4)


def test_of_one_configuration_more_nodes_spread_the_optimizer_states_and_nothing_else() -> None:
    problem = _problem("llama3.1_70B", "mi300x", 1)
    states = enough_nodes_for(problem.rules, TrialConfig(tp=4, pp=1, mbs=1, recompute_granularity="full"))
    assert states.nodes is not None and states.held is not None and states.held.config.tp == 4
    activations = enough_nodes_for(problem.rules, TrialConfig(tp=8, pp=1, mbs=32))
    assert activations.nodes is None and activations.text.startswith("it is not known how many nodes are enough")


def test_where_other_settings_do_on_the_same_nodes_no_more_are_asked_for() -> None:
    problem = _problem("llama3.1_70B", "mi300x", 1)
    text = nodes_text_for(problem.evaluator, TrialConfig(tp=8, pp=1, mbs=32))
    said = "more nodes do not help this configuration (up to 256 were tried); with other settings this node is enough: TP8"
    assert text is not None and text.startswith(said)


def test_what_no_size_holds_is_said_to_be_unknown() -> None:
    pins = {"tp": 1, "pp": 1, "use_torch_fsdp2": False}
    found = enough_of(_problem("llama3.1_405B", "mi300x", 1, pins=pins).evaluator)
    said = "it is not known how many nodes are enough: nothing that was tried on 1, 2, 4,"
    assert found is not None and found.nodes is None and found.text.startswith(said)


def test_a_cluster_of_the_most_nodes_has_no_larger_one_to_try() -> None:
    problem = _problem("llama3.1_70B", "mi300x", MAX_NODES)
    assert enough_nodes(problem.rules).tried == ()
    text = nodes_text_for(problem.evaluator, TrialConfig(tp=3))
    assert text is not None and text.startswith("more nodes do not help this configuration; with other settings")


def test_figures_that_are_made_up_say_nothing_of_nodes() -> None:
    assert enough_of(_problem("llama3.1_405B", "mi300x", 1, mode="dry").evaluator) is None
