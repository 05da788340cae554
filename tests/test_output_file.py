"""Files that a person named for output: whole or not at all, and a pipe stays one, for every flag."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.output_file import write_output
from tests.web.worlds import finish


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def pipe() -> Iterator[int]:
    """The end to read of a named pipe; open for both, it makes no writer wait."""
    os.mkfifo("pipe")
    end = os.open("pipe", os.O_RDWR | os.O_NONBLOCK)
    yield end
    os.close(end)


def read_some(pipe: int) -> bytes:
    assert Path("pipe").is_fifo()
    return os.read(pipe, 1 << 16)


def test_a_pipe_is_written_to(pipe: int) -> None:
    write_output(Path("pipe"), ["one\n", "two\n"])
    assert read_some(pipe) == b"one\ntwo\n"
    Path("link").symlink_to("pipe")
    write_output(Path("link"), "three\n")
    assert read_some(pipe) == b"three\n"


def test_a_link_is_followed_and_stays() -> None:
    Path("place").mkdir()
    Path("link").symlink_to("place/file")
    for text in ("new\n", "newer\n"):
        write_output(Path("link"), text)
        assert Path("place/file").read_text() == text
    assert Path("link").is_symlink()
    assert list(Path("place").iterdir()) == [Path("place/file")]


def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    write_output(Path("file"), "old\n")
    with pytest.raises(UnicodeEncodeError):
        write_output(Path("file"), ["new\n", "\ud800"])
    assert Path("file").read_text() == "old\n"
    assert list(Path().iterdir()) == [Path("file")]
    with pytest.raises(IsADirectoryError):
        write_output(tmp_path, "text")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["report", "run", "--junit"], b"<testsuites"),
        (["export", "run", "-o"], b'"case"'),
        (["compare", "run", "run", "--json"], b'"before"'),
        (["score", "lines.txt", "--device", "cpu", "--out"], b"what a lovely day"),
    ],
    ids=lambda one: one[0] if isinstance(one, list) else "",
)
def test_no_flag_replaces_a_pipe(pipe: int, command: list[str], said: bytes) -> None:
    finish(Path("run"))
    Path("lines.txt").write_text("what a lovely day\nhow are you\n")
    Path("targets.txt").write_text("you are so boring\n")
    assert run([*command, "pipe"]) == 0
    assert said in read_some(pipe)
