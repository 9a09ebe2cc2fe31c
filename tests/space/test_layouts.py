"""Generated layouts: every layer once, every stage one, the ends lighter, no rank heavier than it must be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from space_cases import make_workload

from primus_mcp.inputs.layout import parse_layout
from primus_mcp.space.layouts import balanced_chunks, balanced_layout, loss_layer_equivalents

DENSE = make_workload("dense").architecture
MTP = make_workload("latent", mtp_num_layers=1).architecture


@given(st.integers(1, 16), st.integers(1, 4), st.booleans())
def test_every_layer_is_placed_once_and_every_stage_has_one(pp: int, vpp: int, v_order: bool) -> None:
    if pp * vpp > DENSE.num_layers:
        return
    counts = balanced_chunks(DENSE, pp, vpp, v_order=v_order)
    assert len(counts) == pp * vpp
    assert sum(counts) == DENSE.num_layers
    assert min(counts) >= 1


@pytest.mark.parametrize(("pp", "vpp"), [(5, 1), (7, 1), (3, 3), (6, 2)])
def test_the_stages_with_embedding_and_loss_are_not_the_largest_alone(pp: int, vpp: int) -> None:
    counts = balanced_chunks(DENSE, pp, vpp)
    assert counts[0] <= max(counts[1:])
    assert counts[-1] <= max(counts[:-1])


def test_a_rank_is_never_heavier_than_the_mean_by_more_than_one_layer() -> None:
    for pp in (3, 5, 6, 7):
        counts = balanced_chunks(DENSE, pp, 2)
        ranks = [sum(counts[rank::pp]) for rank in range(pp)]
        work = [load + (loss_layer_equivalents(DENSE) if rank == pp - 1 else 0) for rank, load in enumerate(ranks)]
        assert max(work) <= sum(work) / pp + 1


def test_the_layers_of_ranks_by_hand() -> None:
    """32 layers and a loss of 2.46 are 6.9 a rank of 5, 8.6 a rank of 4 and 4.9 a rank of 7."""
    assert balanced_chunks(DENSE, 5, 1) == (7, 7, 7, 7, 4)
    assert balanced_chunks(DENSE, 7, 1) == (5, 5, 5, 5, 5, 5, 2)
    assert balanced_chunks(DENSE, 32, 1) == (1,) * 32


def test_mtp_layers_and_the_loss_end_the_layout() -> None:
    chunks = parse_layout(balanced_layout(MTP, 4, 2))
    assert [chunk.mtp_layers for chunk in chunks] == [0] * 7 + [1]
    assert chunks[0].embedding
    assert chunks[-1].loss
    assert sum(len(chunk.layers) for chunk in chunks) == 27
    assert len(chunks[-1].layers) < len(chunks[3].layers)


def test_the_loss_weighs_the_vocabulary_against_a_layer() -> None:
    # 131,072 tokens x 4096 over (2 x 4096 x 128 x (32 + 8) + 3 x 4096 x 14336) = 536.9 M / 218.1 M
    assert loss_layer_equivalents(DENSE) == pytest.approx(2.46, rel=0.01)
