"""The sweep's masks say what the rules say, and its bounds never promise less than the projections give."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from sweep_cases import evaluator

from primus_mcp.inputs.training import FinetuneMethod
from primus_mcp.projection.memory import project_memory
from primus_mcp.projection.performance import project_performance
from primus_mcp.projection.performance.projection import rates_for
from primus_mcp.projection.performance.stages import stage_cost
from primus_mcp.projection.placement import place
from primus_mcp.search.sweep_blocks import Walk
from primus_mcp.search.sweep_bounds import Pricing
from primus_mcp.search.sweep_choices import choices_of, trial_of
from primus_mcp.search.sweep_masks import Masks
from primus_mcp.search.sweep_where import parse_where
from primus_mcp.space.knobs import TrialConfig
from primus_mcp.space.trainer_keys import resolve

MODELS = ["mixtral_8x7B_v0.1", "llama3.1_8B", "deepseek_v2_lite", "gpt_oss_20B", "qwen3_30B_A3B", "gemma3_4b"]


@pytest.mark.parametrize("model", MODELS)
def test_random_configurations_are_judged_as_the_rules_judge_them(model: str) -> None:
    price = evaluator(model, 2, all_axes=True)
    rules = price.rules
    choices = choices_of(rules.workload, rules.cluster, axes=rules.axes, pins={})
    assert Masks(rules, choices).random_disagreements(150, seed=7) == []


@pytest.mark.parametrize("model", MODELS)
def test_bounds_hold_on_random_legal_configurations_and_are_near_the_projection_for_stock_schedules(model: str) -> None:
    price = evaluator(model, 2, all_axes=True)
    rules, rng = price.rules, random.Random(3)
    choices = choices_of(rules.workload, rules.cluster, axes=rules.axes, pins={})
    masks = Masks(rules, choices)
    pricing = Pricing(workload=rules.workload, rates=rates_for(rules.cluster, "roofline"))
    walk = Walk(masks=masks, pricing=pricing, where=parse_where(None))
    arch, stock, seen = rules.workload.architecture, [], 0
    for topology in rng.sample(masks.topologies(), 8):
        for lot, bounds in walk.unit([topology]):
            if rng.random() > 0.5:
                continue
            chosen = np.array(rng.sample(range(len(lot.lever)), min(3, len(lot.lever))))
            for i, least_bytes in zip(chosen, bounds.memory_bytes(chosen), strict=True):
                trial = walk.trial(lot.block.knobs(int(lot.batch[i])), int(lot.lever[i]), int(lot.choice[i]))
                verdict = rules.check(trial)
                assert verdict.legal and verdict.config is not None, trial
                exact = project_performance(arch, verdict.config, rules.cluster, gemm_backend="roofline")
                assert bounds.time_s[i] <= exact.iteration_s * (1 + 1e-9), trial
                assert least_bytes <= project_memory(arch, verdict.config, rules.cluster).device_bytes + 8, trial
                seen += 1
                if verdict.config.schedule in ("1f1b", "interleaved") and not verdict.config.use_torch_fsdp2:
                    stock.append(bounds.time_s[i] / exact.iteration_s)
    assert seen > 20
    assert sorted(stock)[len(stock) // 2] > 0.95


def test_the_memory_bound_of_sharded_parameters_does_not_depend_on_the_order_in_which_pipelines_are_walked() -> None:
    rules = evaluator("llama3.1_8B", 2, tp=2, cp=1, mbs=2).rules
    masks = Masks(rules, choices_of(rules.workload, rules.cluster, axes=rules.axes, pins=rules.pins))
    pricing = Pricing(workload=rules.workload, rates=rates_for(rules.cluster, "roofline"))
    walk, seen = Walk(masks=masks, pricing=pricing, where=parse_where(None)), 0
    for lot, bounds in walk.unit(list(reversed(masks.topologies()))):
        least = bounds.memory_bytes(np.arange(len(lot.lever)))
        for i in range(0, len(lot.lever), 7):
            config = resolve(rules.workload, walk.trial(lot.block.knobs(int(lot.batch[i])), int(lot.lever[i]), int(lot.choice[i])))
            if config.use_torch_fsdp2:
                assert least[i] <= project_memory(rules.workload.architecture, config, rules.cluster).device_bytes + 8
                seen += 1
    assert seen > 10


def test_batches_of_a_pipeline_differ_in_mbs_and_gbs_alone() -> None:
    for model in ("deepseek_v2_lite", "gpt_oss_20B", "llama3.1_8B"):
        rules = evaluator(model, 2, all_axes=True).rules
        masks = Masks(rules, choices_of(rules.workload, rules.cluster, axes=rules.axes, pins={}))
        for topology in masks.topologies()[::7]:
            for block in masks.blocks(topology):
                for number, batch in enumerate(block.batches):
                    config = resolve(rules.workload, trial_of(masks._rest, block.knobs(number)))
                    assert config == replace(block.config, mbs=batch.mbs, gbs=batch.gbs)
                    assert place(rules.workload.architecture, config, rules.cluster.world_size).micro_batches == batch.micro_batches


def test_counts_are_conserved_and_every_legal_configuration_is_distinct() -> None:
    rules = evaluator("llama3.1_8B", 1).rules
    choices = choices_of(rules.workload, rules.cluster, axes=rules.axes, pins={})
    masks = Masks(rules, choices)
    pricing = Pricing(workload=rules.workload, rates=rates_for(rules.cluster, "roofline"))
    walk = Walk(masks=masks, pricing=pricing, where=parse_where(None))
    trials = set()
    for topology in masks.topologies():
        for lot, _ in walk.unit([topology]):
            places = zip(lot.batch, lot.lever, lot.choice, strict=True)
            trials |= {walk.trial(lot.block.knobs(int(a)), int(b), int(c)) for a, b, c in places}
    assert walk.legal == len(trials)
    assert walk.legal + sum(masks.fallen.values()) + sum(walk.fallen.values()) == choices.size


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_stage_costs_of_the_engine_and_of_the_arrays_are_equal_for_every_recompute(finetune: FinetuneMethod) -> None:
    from primus_mcp.inputs.training import Recompute
    from primus_mcp.projection.layers.settings import layer_settings
    from primus_mcp.search.sweep_bounds import stage_times
    from primus_mcp.search.sweep_shapes import covered, shape_of
    from primus_mcp.search.sweep_tables import Pricer, lever_set

    price = evaluator("deepseek_v2_lite", 1)
    workload, rates = price.rules.workload, rates_for(price.rules.cluster, "roofline")
    arch = workload.architecture
    trial = TrialConfig(pp=4, vpp=1, ep=2, mbs=2, cross_entropy_loss_fusion=True)
    config = replace(resolve(workload, trial), finetune=finetune, lora_rank=16, lora_targets=("linear_proj", "linear_fc1", "linear_fc2"))
    records = [
        Recompute(),
        Recompute(granularity="selective", modules=("core_attn", "moe")),
        Recompute(granularity="full", method="block", num_layers=2),
        Recompute(granularity="full", method="uniform", num_layers=3),
        Recompute(granularity="full", layer_ids=(0, 1, 9, 26)),
    ]
    placement = place(arch, config, 8)
    shape = shape_of(arch, placement.chunks, placement.owner)
    table = Pricer(rates, arch, ("core_attn", "moe")).table(lever_set(rates, arch, [config]), (1, 2))
    index = np.arange(len(records))
    times = stage_times(table, shape, [covered(arch, shape, record) for record in records], np.ones_like(index), index)
    for r, record in enumerate(records):
        for t, chunk in enumerate(shape.types):
            exact = stage_cost(rates, arch, layer_settings(config), chunk, record)
            if record.layer_ids is None:
                assert times.forward_s[t, r] == pytest.approx(exact.forward_s, rel=1e-12)
                assert times.gradient_s[t, r] == pytest.approx(exact.backward_s, rel=1e-12)
                assert times.weight_s[t, r] == pytest.approx(exact.weight_s, rel=1e-12)


@pytest.mark.parametrize(("pp", "micro_batches"), [(2, 1), (2, 9), (3, 4), (4, 2), (4, 40), (8, 5), (8, 16), (8, 48), (16, 33)])
def test_the_heuristic_schedule_holds_at_least_what_the_bound_counts(pp: int, micro_batches: int) -> None:
    from primus_mcp.projection.pipeline import live_states
    from primus_mcp.search.sweep_shapes import fullest_states

    states = live_states("zero-bubble-heuristic", pp=pp, vpp=1, micro_batches=micro_batches)
    for rank in range(pp):
        held = max(sum(state.forward_live) + sum(state.weight_pending) + (state.kind == "F") for state in states[rank])
        assert held >= fullest_states(("zero-bubble-heuristic", pp, 1, micro_batches, None, None), rank).live[0, 0]
