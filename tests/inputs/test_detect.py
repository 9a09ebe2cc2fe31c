"""Tools' outputs become a cluster file that loads again, each value with its source; what is not known is left out and said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import tool_outputs as tools
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.inputs.cluster import parse_cluster, read_cluster
from primus_mcp.inputs.detect import Detection, catalogue_name, cluster_yaml, detect
from primus_mcp.inputs.detect_formats import parse_tool_output
from primus_mcp.inputs.detect_records import SeenGpu
from primus_mcp.inputs.hardware_files import gpu_names
from primus_mcp.inputs.yaml_loader import parse_text

CLUSTERS = Path(__file__).parents[2] / "examples" / "clusters"
UNIFORM = [
    (tools.amd_static(), "mi300x", 8),
    (tools.amd_static(wrapped=True), "mi300x", 8),
    ("WARNING: user is missing a group\n" + tools.amd_static(4, "AMD Instinct MI325X", 262128), "mi325x", 4),
    (tools.amd_static_text(), "mi355x", 8),
    (tools.rocm(), "mi300x", 8),
    (tools.rocm_text(), "mi300x", 8),
    (json.dumps(json.loads(tools.amd_static(1))[0]), "mi300x", 1),
    (tools.nvidia_xml(), "h100", 8),
    (tools.nvidia_csv(), "h200", 8),
    (tools.nvidia_table(), "h100", 8),
    (tools.nvidia_table(4, "NVIDIA A100-SXM4-40GB", "40960MiB"), "a100_40gb", 4),
    (tools.nvidia_csv(4, "NVIDIA GB200", "189471 MiB"), "gb200", 4),
    (tools.nvidia_csv(8, "NVIDIA A100-SXM4-40GB", "40960 MiB"), "a100_40gb", 8),
    ("GPU 0: NVIDIA B200 (UUID: GPU-1)\nGPU 1: NVIDIA B200 (UUID: GPU-2)\n", "b200", 2),
    (tools.LSPCI, "mi300x", 1),
]


def found(*texts: str, nodes: int | None = None, this_host: bool = False) -> Detection:
    return detect([parse_tool_output(text, f"file{index}") for index, text in enumerate(texts)], nodes=nodes, this_host=this_host)


@pytest.mark.parametrize(("text", "gpu", "count"), UNIFORM)
def test_every_form_is_read_and_the_file_loads_again(text: str, gpu: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(cluster_yaml(found(text, nodes=4)), encoding="utf-8")
    cluster = read_cluster(file).cluster
    assert (cluster.gpu.name, cluster.gpus_per_node, cluster.num_nodes) == (gpu, count, 4)
    assert cluster.hbm_bytes == cluster.gpu.hbm_bytes


def test_each_value_has_a_comment_with_its_source_and_what_is_unknown_is_a_comment_alone() -> None:
    text = cluster_yaml(found(tools.amd_static(), tools.amd_topology(), tools.RDMA))
    for line in text.splitlines():
        if re.match(r"  \w", line):
            assert "#" in line, line
    assert re.search(r"gpu_arch: mi300x +# amd-smi static --json, file0: AMD Instinct MI300X", text)
    assert "  # num_nodes: one host does not know; give --nodes N" in text
    assert "hbm_capacity_gb: amd-smi static --json, file0: 191.98 GB in all" in text
    assert "# links between GPUs (amd-smi topology --json, file1): 56 XGMI" in text
    assert "# NICs (rdma link, file2): 8 active ports" in text
    assert parse_text(text, "x") == {"target_cluster": {"gpus_per_node": 8, "gpu_arch": "mi300x"}}


def test_this_host_is_the_benchmark_host_and_a_file_is_not() -> None:
    here = parse_cluster(found(tools.amd_static(), this_host=True).document(), where="x").benchmark_host
    assert (here.has_gpu, here.benchmark_gpus) == (True, 8)
    assert "available_for_benchmark" not in found(tools.amd_static()).document()


def test_the_reference_pods_of_amd_are_the_detected_clusters() -> None:
    for name, full, memory in (
        ("mi300x", "AMD Instinct MI300X", 196592),
        ("mi325x", "AMD Instinct MI325X", 262128),
        ("mi355x", "AMD Instinct MI355X", 294896),
    ):
        pod = read_cluster(CLUSTERS / f"pod_{name}.yaml").cluster
        seen = parse_cluster(found(tools.amd_static(8, full, memory), nodes=pod.num_nodes).document(), where="x").cluster
        assert (seen.gpu, seen.gpus_per_node, seen.num_nodes, seen.network, seen.hbm_bytes) == (
            pod.gpu,
            pod.gpus_per_node,
            pod.num_nodes,
            pod.network,
            pod.hbm_bytes,
        )


def test_less_memory_than_the_data_sheet_is_taken_over() -> None:
    assert found(tools.amd_static(memory_mb=98304)).document()["optimization"] == {"hbm_capacity_gb": 96.0}
    assert "optimization" not in found(tools.amd_static(memory_mb=400_000)).document()


def test_links_that_are_no_fabric_are_said() -> None:
    assert any("assumes a fabric" in note for note in found(tools.amd_static(), tools.amd_topology(kind="PCIE")).notes)
    assert any("12 XGMI" in note for note in found(tools.amd_static(4), tools.amd_topology_text(4)).notes)
    assert any("NICs: not known" in note for note in found(tools.amd_static()).notes)
    assert any("2 active ports" in note for note in found(tools.amd_static(), tools.DEVINFO).notes)


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ((tools.amd_static(8, compute="CPX"),), "partitioned .CPX/NPS1."),
        ((tools.amd_static(8, compute="DPX", memory="NPS2"),), "partitioned .DPX/NPS2."),
        ((tools.amd_static(8, memory="NPS4"),), "NPS4"),
        ((tools.amd_static(), tools.amd_list(8, partition=3)), "partition 3"),
        ((tools.rocm(64),), "64 GPUs"),
        ((tools.nvidia_xml(mig="Enabled"),), "MIG"),
        (("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\n  MIG 1g.10gb Device 0: (UUID: MIG-1)\n",), "MIG"),
        ((tools.amd_static(8, "AMD Instinct MI210"),), "docs/add-a-gpu.md"),
        ((tools.nvidia_csv(8, "NVIDIA H100 PCIe"),), "'NVIDIA H100 PCIe' is not in the catalogue"),
        ((tools.nvidia_csv(2) + "2, NVIDIA L4, 23034 MiB\n",), "different GPUs"),
        ((tools.amd_static(), tools.nvidia_xml()), "names other GPUs"),
        ((tools.amd_static(8), tools.amd_list(4)), "lists 4 GPUs"),
        ((tools.amd_static(0),), "lists no GPU"),
        ((tools.nvidia_xml(0),), "lists no GPU"),
        ((tools.amd_static(7),), "power of two"),
        ((tools.RDMA,), "no output lists GPUs"),
        ((tools.amd_list(),), "without a name"),
    ],
)
def test_what_no_cluster_can_be_made_of_is_one_line_that_names_it(texts: tuple[str, ...], named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        found(*texts)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "empty"),
        ("hello", "hello"),
        ('{"a": 1}', "is no output that can be read"),
        ("ERROR: Unable to open /dev/kfd read-write: Permission denied", "Permission denied"),
        (tools.amd_static()[:400], "JSON"),
        (tools.nvidia_xml()[:300], "ends in the middle"),
        (tools.nvidia_xml(4, attached=8), "4 of 8"),
        ("index, name, memory.total [MiB]\n0, NVIDIA H200\n", "2 of 3 columns"),
        ("[" * 100_000, "JSON"),
        ('{"card0": {"Card Series": NaN}}', "nan"),
        ("GPU: 0\n" * 5000, "5,000 GPUs"),
        ('<!DOCTYPE x [<!ENTITY a "aaaa">]><nvidia_smi_log>&a;', "ends in the middle"),
    ],
)
def test_an_output_that_cannot_be_read_is_one_line_that_says_why(text: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        parse_tool_output(text, "file")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "command"),
    [
        (tools.nvidia_table().split("| Processes")[0], "nvidia-smi --query-gpu=name,memory.total --format=csv"),
        (tools.nvidia_table(memory="N/A"), "nvidia-smi --query-gpu=name,memory.total --format=csv"),
        (tools.nvidia_table(name="NVIDIA A100-SXM..."), "nvidia-smi --query-gpu=name,memory.total --format=csv"),
        (
            "+----------+\n| AMD-SMI 25.4.2+aca1101    amdgpu version: 6.12.12 |\n| 0000:11:00.0    AMD Instinct MI300X |\n",
            "amd-smi static --json",
        ),
        (
            "\n====== ROCm System Management Interface ======\n====== Concise Info ======\nDevice  Node\n0  2\n",
            "rocm-smi --showproductname",
        ),
    ],
)
def test_a_table_that_does_not_say_enough_names_the_command_that_does(text: str, command: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_tool_output(text, "saved.txt")
    assert command in (refused.value.remedy or "") and "---" not in str(refused.value)


def test_a_table_of_nvidia_smi_says_whether_gpus_are_split() -> None:
    split = parse_tool_output(tools.nvidia_table(2, mig="Enabled"), "saved.txt").gpus
    assert split is not None and [gpu.mig for gpu in split] == [True, True]


def test_text_of_a_tool_cannot_leave_its_comment() -> None:
    name = "AMD Instinct MI300X"
    text = cluster_yaml(detect([parse_tool_output(tools.amd_static(name=name), "a\ntarget_cluster: {gpu_arch: h100}\x1b[31m")]))
    assert parse_text(text, "x")["target_cluster"]["gpu_arch"] == "mi300x" and "\x1b" not in text


@pytest.mark.parametrize("name", gpu_names())
def test_every_gpu_of_the_catalogue_can_be_detected(name: str) -> None:
    vendor = "AMD Instinct" if name.startswith("mi") else "NVIDIA"
    usual = {"a100": "NVIDIA A100-SXM4-80GB", "a100_40gb": "NVIDIA A100-SXM4-40GB", "h100": "NVIDIA H100 80GB HBM3"}
    assert catalogue_name(SeenGpu(name=usual.get(name, f"{vendor} {name.upper()}"))) == name


@pytest.mark.parametrize(
    "name",
    ["NVIDIA H100 NVL", "NVIDIA H20", "NVIDIA A100-PCIE-40GB", "AMD Instinct MI308X", "AMD Instinct MI250X / MI250", "AMD Instinct MI210"],
)
def test_a_gpu_that_is_only_alike_is_not_taken_for_one_of_the_catalogue(name: str) -> None:
    assert catalogue_name(SeenGpu(name=name, pci_device="0x74a1")) is None


def test_a_gpu_without_a_market_name_is_known_by_its_pci_number() -> None:
    assert catalogue_name(SeenGpu(pci_device="0x75A3")) == "mi355x"
    assert catalogue_name(SeenGpu(name="N/A board", pci_device="0x74a1")) == "mi300x"


@settings(deadline=None, max_examples=300)
@given(text=st.sampled_from([item[0] for item in UNIFORM] + [tools.RDMA, tools.DEVINFO, tools.amd_topology()]), data=st.data())
def test_a_cut_or_garbled_output_is_read_or_refused_in_one_line(text: str, data: st.DataObject) -> None:
    at, length = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 40))
    noise = data.draw(
        st.sampled_from(["", "\x00", "\x1b[2J", "}", "GPU: 1\n", "N/A", "9" * 5000, "${HOME}", "\ud800"[:0] + "é\u2028", "<gpu id=>"])
    )
    try:
        cluster_yaml(found(text[:at] + noise + text[at + length :]))
    except InputError as error:
        assert "\n" not in str(error)
