"""Decoder layers on each stage by the trainer's split rules, and the grammar of its layouts."""

from __future__ import annotations

from typing import Any

import pytest
from architecture_cases import decoder

from primus_mcp.errors import InputError
from primus_mcp.inputs.layout import Chunk, layout_text, parse_layout
from primus_mcp.inputs.split import layers_per_chunk, place_chunks
from primus_mcp.inputs.training import TrainingConfig

ENDS = {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}


def counts(layers: int, **config: Any) -> tuple[int, ...]:
    return layers_per_chunk(decoder(layers, 1024, 4096, 16, 16, 32_000, 2048), TrainingConfig(**config))


def test_layers_are_dealt_evenly_over_ranks_and_virtual_stages() -> None:
    assert counts(8, pp=4) == (2, 2, 2, 2)
    assert counts(8, pp=4, vpp=2) == (1,) * 8


def test_embedding_and_loss_count_as_a_layer_each_of_the_first_and_last_stage() -> None:
    assert counts(30, pp=4, **ENDS) == (7, 8, 8, 7)
    assert counts(31, pp=4, account_for_loss_in_pipeline_split=True) == (8, 8, 8, 7)
    assert counts(2, pp=4, **ENDS) == (0, 1, 1, 0)


def test_the_ends_may_be_fixed_and_the_middle_shares_the_rest() -> None:
    first, last = "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"
    assert counts(32, pp=4, **{first: 5, last: 3}) == (5, 12, 12, 3)
    assert counts(32, pp=4, **{first: 5}) == (5, 9, 9, 9)
    assert counts(32, pp=4, **{last: 2}) == (10, 10, 10, 2)
    assert counts(32, pp=4, vpp=2, **{first: 4, last: 4}) == (2, 6, 6, 2, 2, 6, 6, 2)
    assert counts(8, pp=2, **{first: 5, last: 3}) == (5, 3)


@pytest.mark.parametrize(
    ("layers", "config", "told"),
    [
        (30, {"pp": 4}, "30 decoder layers do not divide over 4"),
        (32, {"pp": 4, **ENDS}, "34 decoder layers .embedding and loss counted."),
        (32, {"pp": 1, "decoder_first_pipeline_num_layers": 16, "decoder_last_pipeline_num_layers": 16}, "leave 0 for -1 middle"),
        (32, {"pp": 2, "decoder_first_pipeline_num_layers": 5, "decoder_last_pipeline_num_layers": 3}, "leave 24 for 0 middle"),
        (32, {"pp": 4, "decoder_first_pipeline_num_layers": 33}, "leave -1 for 3 middle"),
        (32, {"pp": 4, "decoder_first_pipeline_num_layers": 6}, "26 remaining decoder layers"),
        (32, {"pp": 4, "vpp": 2, "decoder_first_pipeline_num_layers": 5}, "do not divide by VPP 2"),
    ],
)
def test_what_does_not_divide_is_one_line_with_its_remedy(layers: int, config: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        counts(layers, **config)
    assert caught.value.remedy


def test_chunks_number_the_layers_through_and_the_last_holds_what_comes_behind() -> None:
    arch = decoder(6, 1024, 4096, 16, 16, 32_000, 2048, mtp_num_layers=1)
    assert place_chunks(arch, TrainingConfig(pp=3)) == (
        Chunk(layers=(0, 1), embedding=True),
        Chunk(layers=(2, 3)),
        Chunk(layers=(4, 5), mtp_layers=1, loss=True),
    )
    assert place_chunks(arch, TrainingConfig(pp=2, pipeline_layout="Et|t*5mL"))[1].layers == (1, 2, 3, 4, 5)
    for layout, told in (("Et|t*4mL", "has 5 decoder layers"), ("E|t|t*5mL", "has 3 stages, PP 2 x VPP 1 needs 2")):
        with pytest.raises(InputError, match=told) as caught:
            place_chunks(arch, TrainingConfig(pp=2, pipeline_layout=layout))
        assert caught.value.remedy


@pytest.mark.parametrize("text", ["Et*3|(tt|)*2t*4,mL", "Ettt|tt|tt|ttttmL", "E,t,t,t|(t*2|)*2t*4mL"])
def test_groups_and_single_letters_repeat_and_commas_mean_nothing(text: str) -> None:
    assert [len(chunk.layers) for chunk in parse_layout(text)] == [3, 2, 2, 4]
    assert parse_layout(text)[-1] == Chunk(layers=(7, 8, 9, 10), mtp_layers=1, loss=True)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Ex|tL", "character 'x'"),
        ("t|tL", "0 times E"),
        ("Et|tLL", "2 times L"),
        ("tE|tL", "does not begin with E"),
        ("Et|Lt", "does not begin with E and end with L"),
        ("Em|tL", "m. stands before a decoder layer"),
        ("E(t|)*99999999L", "repeats"),
        ("Et*99999L", "repeats 't' 99999 times"),
    ],
)
def test_a_layout_that_the_trainer_would_stop_at_is_named(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        parse_layout(text)


def test_a_layout_is_written_as_it_is_read() -> None:
    assert layout_text((3, 1, 0, 2), 1) == "Et*3|t||t*2mL"
    assert [len(chunk.layers) for chunk in parse_layout(layout_text((3, 1, 0, 2), 1))] == [3, 1, 0, 2]
