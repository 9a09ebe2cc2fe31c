"""Every input is hostile: whatever is in a file, the answer is a record or one line that names what is wrong.

Some hundred examples run here; `pytest --hypothesis-profile=thorough` runs 10,000 of each.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile import byte_edits, edited, mutated, mutations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from primus_mcp.api import resolve
from primus_mcp.cli.main import main
from primus_mcp.errors import InputError, PrimusMcpError
from primus_mcp.inputs.cluster import parse_cluster, read_cluster
from primus_mcp.inputs.own_gpu import read_gpu_file
from primus_mcp.inputs.workload import read_workload
from primus_mcp.space.knobs import TrialConfig

PROJECT = Path(__file__).parents[2]
WORKLOADS = sorted((PROJECT / "examples" / "workloads").glob("*.yaml"))
CLUSTERS = sorted((PROJECT / "examples" / "clusters").glob("*.yaml"))
ENVIRONMENT = {"A": "8"}
FOUR_NODES = parse_cluster({"target_cluster": {"gpu_arch": "mi355x", "num_nodes": 4}}, where="four nodes")
relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def one_line(action: Callable[[], object]) -> object:
    """The result, or None for an error of the family, which is one short line."""
    try:
        return action()
    except PrimusMcpError as error:
        text = str(error)
        assert text
        assert "\n" not in text
        assert len(text) < 4000
        return None


def mutated_file(path: Path, source: Path, steps: list[Any]) -> Path:
    """The mutated document of a source, written to a path."""
    document = mutated(yaml.safe_load(source.read_text(encoding="utf-8")), steps)
    path.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
    return path


def price(path: Path) -> object:
    """From the file to the price of the workload as it is."""
    workload = read_workload(path, environment=ENVIRONMENT)
    found = resolve(workload, FOUR_NODES, gemm_backend="roofline")
    return found.evaluator.evaluate(TrialConfig())


@relaxed
@given(workload=st.sampled_from(WORKLOADS), steps=mutations())
def test_a_mutated_workload_is_priced_or_refused_in_one_line(folder: Path, workload: Path, steps: list[Any]) -> None:
    path = mutated_file(folder / "workload.yaml", workload, steps)
    one_line(lambda: price(path))


@relaxed
@given(workload=st.sampled_from(WORKLOADS), edits=byte_edits())
def test_a_workload_with_bytes_changed_is_read_or_refused_in_one_line(folder: Path, workload: Path, edits: list[Any]) -> None:
    path = folder / "bytes.yaml"
    path.write_bytes(edited(workload.read_bytes(), edits))
    one_line(lambda: read_workload(path, environment=ENVIRONMENT))


@relaxed
@given(cluster=st.sampled_from(CLUSTERS), steps=mutations())
def test_a_mutated_cluster_is_read_or_refused_in_one_line(folder: Path, cluster: Path, steps: list[Any]) -> None:
    path = mutated_file(folder / "cluster.yaml", cluster, steps)
    one_line(lambda: read_cluster(path))


@relaxed
@given(steps=mutations())
def test_a_mutated_gpu_file_is_read_or_refused_in_one_line(folder: Path, steps: list[Any]) -> None:
    path = mutated_file(folder / "gpu.yaml", PROJECT / "examples" / "gpus" / "mi300a.yaml", steps)
    one_line(lambda: read_gpu_file(path))


READERS: tuple[Callable[[Path], object], ...] = (lambda path: read_workload(path, environment={}), read_cluster, read_gpu_file)


@pytest.fixture(params=READERS, ids=["workload", "cluster", "gpu"])
def read(request: pytest.FixtureRequest) -> Iterator[Callable[[Path], object]]:
    yield request.param


def refused(read: Callable[[Path], object], path: Path, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_a_missing_file_and_a_directory_are_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    refused(read, tmp_path / "gone.yaml", "gone.yaml", "does not exist")
    refused(read, tmp_path, "is a directory")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_named_pipe_is_refused_and_never_waited_for(tmp_path: Path, read: Callable[[Path], object]) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    worker = threading.Thread(target=lambda: refused(read, pipe, "not a regular file"), daemon=True)
    worker.start()
    worker.join(20)
    assert not worker.is_alive()


def test_a_file_of_100_mb_is_refused_by_its_size(tmp_path: Path, read: Callable[[Path], object]) -> None:
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(100 * 2**20)
    refused(read, huge, "104,857,600 bytes")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", ("nothing",)),
        (b"- 1\n- 2\n", ("a list",)),
        (b"just text", ("a str",)),
        (b"a: 1\na: 2\n", ("'a' is written twice",)),
        (b"a:\n\tb: 1\n", ("line 2",)),
        (b"a: .nan\n", ("a is nan",)),
        (b"a: -.inf\n", ("a is -inf",)),
        (b"a: 99999999999999999999999\n", ("beyond 64 bits",)),
        (b"\xff\xfea: 1\n", ("not UTF-8",)),
        (b"a: \xc3\x28\n", ("not UTF-8",)),
        (b"a: !!python/object/apply:os.system ['true']\n", ("line 1",)),
        (b"a: [" * 100, ("nests deeper",)),
        (b"2026-01-01: x\n", ("no text",)),
        (b"a: 2026-01-01\n", ("is a date",)),
        (b"? [x]\n: 1\n", ()),
        (b"a: 1\n---\nb: 2\n", ()),
    ],
)
def test_content_that_cannot_be_meant_is_named(
    tmp_path: Path, read: Callable[[Path], object], content: bytes, words: tuple[str, ...]
) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(content)
    refused(read, path, "file.yaml", *words)


def test_aliases_that_expand_without_end_are_refused(tmp_path: Path, read: Callable[[Path], object]) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]" for i in range(1, 12)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    refused(read, path, "too much data")


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_endings_and_a_byte_order_mark_change_nothing(tmp_path: Path, ending: str, mark: str) -> None:
    text = WORKLOADS[0].read_text(encoding="utf-8")
    path = tmp_path / WORKLOADS[0].name
    path.write_bytes((mark + text.replace("\n", ending)).encode("utf-8"))
    plain = read_workload(WORKLOADS[0], environment={})
    assert read_workload(path, environment={}).digest == plain.digest


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("a: 1", encoding="utf-8")
    path.chmod(0)
    refused(read, path, "cannot be read")


def test_an_out_dir_that_is_a_file_ends_with_code_2_and_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("x", encoding="utf-8")
    code = main(["tune", "--model", "llama3_8B", "--gpu", "mi300x", "--seed-only", "--out-dir", str(blocked)])
    said = capsys.readouterr().err
    assert code == 2
    assert "--out-dir" in said.splitlines()[-1]


def test_a_value_of_any_length_and_shape_is_quoted_in_one_bounded_line() -> None:
    text = str(InputError(f"is {'x' * 100_000!r}\nand more", where="a\nb", remedy="write\u2028less"))
    assert text.splitlines() == [text]
    assert len(text) < 1500
