"""Primus's hardware YAML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster import make_cluster
from primus_mcp.inputs.hardware_config import parse_hardware_config, read_hardware_config
from primus_mcp.inputs.hardware_files import gpu_profile, with_network
from primus_mcp.projection.ops.collectives import all_reduce_s, all_to_all_s

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "hardware"
# Every field, with a value unlike the catalogue's.
FIELDS: dict[str, object] = {
    "node_bw": 90.0,
    "node_lat": 3.0,
    "pod_bw": 12.5,
    "pod_lat": 30.0,
    "cluster_bw": 6.25,
    "cluster_lat": 300.0,
    "node_size": 4,
    "pod_size": 16,
    "nics_per_node": 2,
    "switch_topology": True,
    "node_topology": "switch",
    "vector_flops": "1.0e12",
}


def _parse(block: dict[str, Any]) -> dict[str, object]:
    return parse_hardware_config({"hardware_config": block}, "hardware.yaml")


@pytest.mark.parametrize("field", FIELDS)
def test_every_field_of_the_file_changes_the_time_of_some_collective(field: str) -> None:
    cluster = make_cluster("mi355x", num_nodes=64)
    base = with_network(cluster.network, _parse({"pod_size": 64, "node_bw": 50.0, "cluster_bw": 40.0}))
    changed = with_network(base, _parse({field: FIELDS[field]}))
    times = [
        [
            collective(replace(cluster, network=network), 2**26, size, stride)
            for collective in (all_reduce_s, all_to_all_s)
            for size, stride in ((4, 1), (8, 1), (32, 1), (512, 1))
        ]
        for network in (base, changed)
    ]
    assert times[0] != times[1]


def test_units_become_si() -> None:
    overrides = _parse({"node_bw": 448.0, "pod_lat": 2.0, "vector_flops": "163.0e12"})
    assert overrides["node_bandwidth_bytes_per_s"] == 448e9
    assert overrides["nic_latency_s"] == pytest.approx(2e-6)
    assert overrides["vector_flops"] == 163e12


def test_fields_that_are_left_out_stay_the_gpu_s_own() -> None:
    own = gpu_profile("mi355x").network
    assert with_network(own, _parse({})) == own


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"node_bandwidth": 1}, r"unknown key hardware_config.node_bandwidth; did you mean node_bw\?"),
        ({"pod_bw": 0}, "hardware_config.pod_bw = 0: .*more than 0"),
        ({"pod_bw": -50}, "hardware_config.pod_bw = -50"),
        ({"pod_bw": True}, "hardware_config.pod_bw = True: is true or false"),
        ({"pod_bw": "fast"}, "hardware_config.pod_bw = 'fast': is not a number"),
        ({"node_lat": float("nan")}, "hardware_config.node_lat = nan"),
        ({"node_size": 1}, "hardware_config.node_size = 1: .*at least 2"),
        ({"node_size": 8.5}, "hardware_config.node_size = 8.5: .*whole number"),
        ({"node_topology": "ring"}, "hardware_config.node_topology = 'ring': .*'mesh' or 'switch'"),
        ({"switch_topology": "yes"}, "hardware_config.switch_topology = 'yes': .*true or false"),
    ],
)
def test_a_mistake_is_one_line_with_a_remedy(block: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        _parse(block)
    assert "\n" not in str(caught.value)


def test_fields_without_their_block_are_explained() -> None:
    with pytest.raises(InputError, match="indent them under `hardware_config:`"):
        parse_hardware_config({"node_bw": 448.0}, "hardware.yaml")
    with pytest.raises(InputError, match="hardware_config is missing"):
        parse_hardware_config({}, "hardware.yaml")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_hardware_file_sets_every_field(path: Path) -> None:
    assert len(read_hardware_config(path)) == len(FIELDS)


def test_primus_s_own_hardware_files_read(shared: Path) -> None:
    paths = sorted((shared / "primus/examples/hardware_configs").glob("*.yaml"))
    assert len(paths) >= 4
    for path in paths:
        assert len(read_hardware_config(path)) == len(FIELDS)
