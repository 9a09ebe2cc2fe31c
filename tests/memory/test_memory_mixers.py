"""Memory of hybrid layers: hand counts, laws, and what Primus's own example files state for MI355X."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from architecture_cases import decoder
from memory_cases import configured

from primus_mcp.inputs.architecture import Architecture, GatedDeltaNet, Mamba2, Mixer, ShortConvolution
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.training_findings import MIXER_MEMORY_ERRORS
from primus_mcp.inputs.workload import read_workload
from primus_mcp.projection.memory import project_memory
from primus_mcp.projection.memory.activations.mixers import mixer_operations
from primus_mcp.projection.memory.activations.settings import activation_settings
from primus_mcp.projection.memory.chunks import layer_profile

EXAMPLES = Path("primus/examples/megatron/configs/MI355X")
MIXERS: list[Mixer] = [
    ShortConvolution(kernel=3),
    GatedDeltaNet(key_heads=8, key_head_dim=64, value_heads=16, value_head_dim=64, kernel=4),
    Mamba2(heads=32, head_dim=64, state_dim=64, groups=8, kernel=4),
]


def hybrid(mixer: Mixer) -> Architecture:
    base = decoder(4, 1024, 4096, 8, 4, 32_000, 2048)
    return replace(base, mixer=mixer, layer_kinds=("mixer", "attention", "mixer", "attention"))


def saved(arch: Architecture, **changes: Any) -> float:
    return sum((operation.saved_bytes for operation in mixer_operations(activation_settings(arch, configured(8, **changes)))), 0.0)


def test_a_short_convolution_by_hand() -> None:
    """Residual, its statistics, normed input, B C x with products and outputs (5 h), input of the output matrix; 2,048 tokens of 1,024."""
    hidden = 2048 * 1024 * 2
    assert saved(hybrid(MIXERS[0])) == hidden + 2048 * 4 + hidden + 5 * hidden + hidden


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_saved_bytes_grow_with_the_batch_and_shrink_with_tp(mixer: Mixer) -> None:
    arch = hybrid(mixer)
    assert saved(arch, mbs=2) == pytest.approx(2 * saved(arch, mbs=1))
    assert saved(arch, tp=2, sequence_parallel=True) == pytest.approx(saved(arch) / 2)


@pytest.mark.parametrize("mixer", MIXERS, ids=lambda mixer: type(mixer).__name__)
def test_halves_alone_are_the_layer_together(mixer: Mixer) -> None:
    settings = activation_settings(hybrid(mixer), configured(8))
    parts = [layer_profile(settings, False, kind).saved_bytes for kind in ("mixer_alone", "mlp_alone")]
    assert layer_profile(settings, False, "mixer").saved_bytes == pytest.approx(sum(parts))
    parts = [layer_profile(settings, False, kind).saved_bytes for kind in ("attention_alone", "mlp_alone")]
    assert layer_profile(settings, False, "attention").saved_bytes == pytest.approx(sum(parts))


STATED = [
    ("zebra_llama_1B", 97.2, -0.14, 0.0),
    ("zebra_llama_3B", 96.3, -0.05, 0.05),
    ("zebra_llama_8B", 98.3, -0.05, 0.06),
    ("zebra_llama_1B_gdn", 96.1, 0.0, 0.38),
]


def test_the_bounds_that_an_answer_names_are_those_of_this_test() -> None:
    assert (min(low for _, _, low, _ in STATED), max(high for _, _, _, high in STATED)) == MIXER_MEMORY_ERRORS


@pytest.mark.parametrize(("name", "percent", "low", "high"), STATED)
def test_primus_own_hybrid_examples_state_their_memory(shared: Path, name: str, percent: float, low: float, high: float) -> None:
    """The largest batch that fits and its share of 288 GB, from a comment in each file. Too high where the loss is fused with the head."""
    workload = read_workload(shared / EXAMPLES / f"{name}-pretrain.yaml", environment={})
    cluster = make_cluster("mi355x")
    projected = project_memory(workload.architecture, workload.baseline, cluster).device_bytes / cluster.gpu.hbm_bytes
    assert low <= projected / (percent / 100) - 1 <= high
