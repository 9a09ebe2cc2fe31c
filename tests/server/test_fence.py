"""What a client's YAML and paths can reach."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp_cases import LLAMA, call, refused

from primus_mcp.errors import InputError
from primus_mcp.server.app import build_server
from primus_mcp.server.fence import Fence
from primus_mcp.server.options import ServeOptions

pytest_plugins = ("mcp_fixtures",)
CANARY = "canary-4f9d1c"
LINKS = pytest.mark.skipif(sys.platform == "win32", reason="symbolic links need a privilege")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "w.yaml").write_text("a: 1\n")
    (tmp_path / "outside.yaml").write_text(f"secret: {CANARY}\n")
    return tmp_path / "root"


def test_a_path_inside_a_root_is_found_absolute_or_relative(root: Path) -> None:
    fence = Fence([root / "sub", root])
    assert fence.path("w.yaml", "x") == (root / "w.yaml").resolve()
    assert fence.path(str(root / "w.yaml"), "x") == (root / "w.yaml").resolve()
    assert fence.path("new/file.yaml", "x") == (root / "sub" / "new" / "file.yaml").resolve()


@pytest.mark.parametrize(
    "text",
    [
        "../outside.yaml",
        "sub/../../outside.yaml",
        "/etc/passwd",
        "~/x",
        "~root/x",
        "..",
        "\0",
        "w.yaml\0",
        "",
        "a\nb",
        "x" * 5000,
        "../root2/x",
        "/proc/self/environ",
    ],
)
def test_a_path_outside_is_refused(root: Path, text: str) -> None:
    with pytest.raises(InputError):
        Fence([root]).path(text, "x")


@LINKS
def test_a_link_that_leads_out_is_outside_even_for_files_that_do_not_exist_yet(root: Path) -> None:
    (root / "link.yaml").symlink_to(root.parent / "outside.yaml")
    (root / "folder").symlink_to(root.parent)
    (root / "loop").symlink_to(root / "loop")
    fence = Fence([root])
    for text in ("link.yaml", "folder/outside.yaml", "folder/new.yaml", "loop"):
        with pytest.raises(InputError):
            fence.path(text, "x")


def test_a_root_whose_name_is_a_prefix_opens_no_neighbour(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root-two").mkdir()
    with pytest.raises(InputError):
        Fence([tmp_path / "root"]).path(str(tmp_path / "root-two" / "x"), "x")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["..", ".", "sub", "w.yaml", "/", "//", "~", "%2e%2e", "\\", "C:", "\u2024\u2024", " "]), max_size=8).map(
        "/".join
    )
)
@example("sub/../../outside.yaml")
def test_no_spelling_leads_out(root: Path, text: str) -> None:
    fence = Fence([root])
    try:
        found = fence.path(text, "x")
    except InputError:
        return
    assert os.path.realpath(found).startswith(os.path.realpath(root))


@pytest.mark.anyio
async def test_files_named_inside_a_clients_yaml_are_fenced_too(home: Path, root: Path) -> None:
    server = build_server(ServeOptions(home=home, roots=(root,)))
    hardware = root.parent / "outside.yaml"
    cluster = f"target_cluster:\n  gpu_arch: mi300x\n  hardware_config: {hardware}\n"
    preset = "modules:\n  pre_trainer: {framework: megatron, config: pre_trainer.yaml, model: ../../../../outside.yaml}\n"
    async with Client(server) as client:
        message = await refused(client, "open_session", workload="llama3.1_8B", cluster=cluster)
        assert "outside the allowed folders" in message
        assert CANARY not in message
        message = await refused(client, "open_session", workload=preset, gpu="mi300x", nodes=1)
        assert "primus/configs" in message
        message = await refused(client, "open_session", **LLAMA, out_dir=str(root.parent / "elsewhere"))
        assert "outside the allowed folders" in message
        assert not (root.parent / "elsewhere").exists()
        for text in (str(hardware), "../outside.yaml"):
            assert CANARY not in await refused(client, "open_session", workload=text, gpu="mi300x", nodes=1)


@pytest.mark.anyio
async def test_a_clients_yaml_cannot_read_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("PRIMUS_SECRET_TOKEN", CANARY)
    monkeypatch.setenv("PRIMUS_TP", "2")
    workload = (
        "exp_name: x\nmodules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n    model: llama3.1_8B.yaml\n"
        "    overrides: {micro_batch_size: 1, global_batch_size: 8, mock_data: true,\n"
        "      tensor_model_parallel_size: '${PRIMUS_TP:1}', train_data_path: '${NAME:none}'}\n"
    )
    async with Client(build_server(ServeOptions(home=home))) as client:
        for name in ("OPENAI_API_KEY", "PRIMUS_SECRET_TOKEN"):
            text = workload.replace("NAME:none", name)
            assert CANARY not in await refused(client, "open_session", workload=text, gpu="mi300x", nodes=1)
        opened = await call(client, "open_session", workload=workload, gpu="mi300x", nodes=1)
        assert opened["baseline"]["tp"] == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    "text",
    [
        "a: &a [1,2,3,4,5,6,7,8,9]\n"
        + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [" + ",".join([f"*{chr(97 + n)}"] * 9) + "]\n" for n in range(8)),
        "{" * 3000 + "\n",
        "!!python/object/apply:os.system ['true']\nx: 1\n",
        "a: 1\na: 2\n",
        "x: .inf\ny: 1\n",
        "modules: 3\nx: 1\n",
        "\n\n",
        "modules:\n  pre_trainer: {framework: x, config: y, model: z}\n",
    ],
)
async def test_hostile_yaml_is_one_line_of_error(home: Path, text: str) -> None:
    async with Client(build_server(ServeOptions(home=home))) as client:
        message = await refused(client, "open_session", workload=text, gpu="mi300x", nodes=1)
        assert "\n" not in message
        assert "Traceback" not in message
        assert str(home) not in message


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
@pytest.mark.anyio
async def test_a_pipe_or_device_inside_a_root_is_not_read(home: Path, root: Path) -> None:
    os.mkfifo(root / "pipe.yaml")
    async with Client(build_server(ServeOptions(home=home, roots=(root,)))) as client:
        assert "regular file" in await refused(client, "open_session", workload="pipe.yaml", gpu="mi300x", nodes=1)
