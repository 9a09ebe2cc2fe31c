"""Hostile and sloppy YAML: one InputError each, naming file, place and remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from primus_mcp.errors import InputError
from primus_mcp.inputs.yaml_loader import MAX_BYTES, load_yaml, parse_text, substitute


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        load_yaml(path)
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    assert caught.value.remedy
    return message


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"a: 1\na: 2\n", "line 2"),
        (b"a:\n  b: 1\n  c: 2\n  b: 3\n", "'b' is written twice"),
        (b"a:\n\tb: 1\n", "line 2, column 1: a tab"),
        (b"a: [1, 2\n", "line"),
        (b"a: \xff\xfe\n", "not UTF-8"),
        ("a: 1\n".encode("utf-16"), "not UTF-8"),
        (b"a:\n  b: [1, .nan]\n", "a.b[1] is nan"),
        (b"a: .inf\n", "a is inf"),
        (b"", "nothing"),
        (b"- 1\n- 2\n", "a list"),
        (b"just text\n", "a str"),
        (b"a: !!python/object/apply:os.system ['true']\n", "remove the tag"),
        (b"a: " + b"[" * 100 + b"]" * 100, "nests deeper"),
        (b"a: " + b"[" * 5000 + b"]" * 5000, "nest"),
        (b"a: &x [*x]\n", "recursive"),
        (b"a: " + b"9" * 5000 + b"\n", "cannot be read"),
        (b"a: 99999999999999999999\n", "64 bits"),
        (b"1: a\n", "is a key that is no text"),
        (b"a: 2026-11-29\n", "a is a date"),
        (b"a: 1\n---\nb: 2\n", "document"),
    ],
)
def test_unusable_content_is_one_line_with_the_place_and_a_remedy(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(content)
    assert named in refusal(path)


def test_aliases_that_multiply_are_refused_without_expanding_them(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join(lines))
    assert "aliases" in refusal(path)


def test_a_path_that_is_no_readable_file_is_named(tmp_path: Path) -> None:
    assert "does not exist" in refusal(tmp_path / "absent.yaml")
    assert "is a directory" in refusal(tmp_path)
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "not a regular file" in refusal(tmp_path / "pipe.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    assert "more than" in refusal(tmp_path / "large.yaml")
    with pytest.raises(InputError):
        load_yaml(Path("nul\0byte.yaml"))


def test_windows_line_ends_and_a_byte_order_mark_read_as_usual(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb:\r\n  c: two\r\n")
    assert load_yaml(path) == {"a": 1, "b": {"c": "two"}}


def test_scalars_follow_yaml_1_1_as_the_trainer_reads_them() -> None:
    text = "a: 1.0e-5\nb: 1e-5\nc: yes\nd: ~\ne: 0x10\nf: '1'\n"
    assert parse_text(text, "w") == {"a": 1e-5, "b": "1e-5", "c": True, "d": None, "e": 16, "f": "1"}


def test_a_merge_key_is_plain_yaml_and_no_duplicate() -> None:
    assert parse_text("base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\n", "w")["own"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "environment", "value"),
    [
        ("${TP:8}", {}, 8),
        ("${TP:8}", {"TP": "2"}, 2),
        ("${ON:true}", {}, True),
        ("${ON:false}", {}, False),
        ("${PATH_:null}", {}, None),
        ("${LR:1.0e-5}", {}, 1e-5),
        ("${LR:1e-5}", {}, 1e-5),
        ("${EMPTY:}", {}, ""),
        ("${MODEL:deepseek_v3}.yaml", {}, "deepseek_v3.yaml"),
        ("${A:x}/${B:y}", {"B": "z"}, "x/z"),
        ("${URL:http://h:80}", {}, "http://h:80"),
        ("${X:nan}", {}, "nan"),
        ("plain 1", {}, "plain 1"),
        ("7", {}, "7"),
    ],
)
def test_placeholders_are_filled_and_typed(text: str, environment: dict[str, str], value: object) -> None:
    filled = substitute({"k": [text]}, environment, "w")["k"][0]
    assert filled == value
    assert type(filled) is type(value)


def test_a_variable_without_value_is_named_with_its_field() -> None:
    with pytest.raises(InputError, match=r"modules\.x needs the environment variable SIZE"):
        substitute({"modules": {"x": "${SIZE}"}}, {}, "w.yaml")
    with pytest.raises(InputError, match="placeholder"):
        substitute({"x": "${A:${B:1}}"}, {}, "w.yaml")
