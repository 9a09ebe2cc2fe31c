"""A launch script is read as bash would expand it, and never run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from primus_mcp.errors import InputError
from primus_mcp.inputs.shell_words import read_words


def texts(script: str, **defines: str) -> list[str]:
    return [token.text for token in read_words(script, defines, "script")]


def unknowns(script: str, **defines: str) -> list[str]:
    return [token.unknown for token in read_words(script, defines, "script") if token.unknown]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("--a 1 --b=2", ["--a", "1", "--b=2"]),
        ("--a 1 \\\n  --b 2", ["--a", "1", "--b", "2"]),
        ("--a 1 \\\r\n  --b 2\r\n", ["--a", "1", "--b", "2"]),
        ("--a 1 # one --b 2\n--c 3", ["--a", "1", "--c", "3"]),
        ("--a '([0]*3+[1]*58)' --b", ["--a", "([0]*3+[1]*58)", "--b"]),
        ("--a ([0]*3+[1]*58) --b", ["--a", "([0]*3+[1]*58)", "--b"]),
        ("--a 'x y' --b \"x  y\"", ["--a", "x y", "--b", "x  y"]),
        ("--a x\\ y", ["--a", "x y"]),
        ("N=3\n--a $N --b ${N}4", ["--a", "3", "--b", "34"]),
        ("N=3\nN=$N$N\n--a $N", ["--a", "33"]),
        ("N=3\nN+=4\n--a $N", ["--a", "34"]),
        ('A="--a 1"\nA="$A --b 2"\n$A --c', ["--a", "1", "--b", "2", "--c"]),
        ("A=(--a 1 # no\n --b '2 3')\nA+=(--c)\npython pretrain_gpt.py ${A[@]}", ["--a", "1", "--b", "2 3", "--c"]),
        ('ARGS="--a 1\n --b 2"\n', ["--a", "1", "--b", "2"]),
        ("export A=1; B=2 torchrun --nproc_per_node $X x/pretrain_gpt.py --a $A 2>&1 | tee log.txt", ["--a", "1"]),
        ("--a ${N:-7} --b ${M-8}", ["--a", "7", "--b", "8"]),
        ("--a k=v", ["--a", "k=v"]),
        ("--a ''", ["--a", ""]),
    ],
)
def test_words_are_those_of_the_shell(script: str, words: list[str]) -> None:
    assert texts(script) == words


def test_a_define_wins_over_the_script() -> None:
    assert texts("N=3\n--a $N --b ${M:-1}", N="5", M="6") == ["--a", "5", "--b", "6"]


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("--a $N", "N"),
        ("--a ${N}", "N"),
        ("--a $(nproc)", "$(nproc)"),
        ("--a `nproc`", "`nproc`"),
        ("W=$(($N*4))\n--a $W", "$(($N*4))"),
        ("--a $1", "$1"),
        ("--a ${N%.*}", "${N%.*}"),
        ("if [ $X = 1 ]; then\nN=3\nfi\n--a $N", "condition in line 2"),
        ("A=$B\nB=$A\n--a $B", "B"),
    ],
)
def test_what_only_a_shell_could_decide_is_unknown_and_named(script: str, named: str) -> None:
    assert any(named in unknown for unknown in unknowns(script))


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("--a 'x", "quote"),
        ('--a "x', "quote"),
        ("A=(1 2", "array"),
        ("--a $(x", "missing"),
        ("--a ${x", "missing"),
        ("python a.py --x\npython b.py --y", "several scripts"),
        ("for i in 1 2; do\npython a.py --x\ndone", "loop"),
        ("A=xxxxxxxxxx\n" + "A=$A$A\n" * 60 + "--a $A", "too much text"),
        ("--a " * 30_000, "words"),
    ],
)
def test_a_script_that_cannot_be_read_is_one_line(script: str, named: str) -> None:
    with pytest.raises(InputError, match=named) as caught:
        read_words(script, {}, "script")
    assert "\n" not in str(caught.value)


def test_nothing_is_run(tmp_path: Path) -> None:
    file = tmp_path / "touched"
    unknowns(f"X=$(touch {file})\n--a `touch {file}` $X; touch {file}")
    assert not file.exists()


@settings(deadline=None, max_examples=300)
@given(
    words=st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cf", "Zl", "Zp", "Zs", "Cn", "Co"]), max_size=12), max_size=8
    )
)
def test_quoted_words_come_back_as_they_are(words: list[str]) -> None:
    line = "--x " + " ".join(shlex.quote(word) for word in words)
    assert texts(line) == ["--x", *words]


@settings(deadline=None, max_examples=500)
@given(text=st.text(alphabet="ab1=-+$(){}[]@'\"`\\#;&|<> \n\tif", max_size=80))
def test_any_text_is_words_or_one_line(text: str) -> None:
    try:
        read_words(text, {}, "script")
    except InputError as error:
        assert "\n" not in str(error)
