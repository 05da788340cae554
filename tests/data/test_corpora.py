"""Each format on a file of a few lines, detection, and each way in which a file can be bad."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from backtalk.data.corpora import FORMATS, chitchat_texts, detect_format, pairs_of, read_corpus
from backtalk.errors import InputError
from backtalk.types import Turn

FILES = {
    "pairs-tsv": "hello\thi there\nhi there\thow are you\nbye\tbye\n",
    "pairs-jsonl": '{"input": "hello", "reply": "hi", "dialogue": 7}\n{"input": "yo", "reply": "hey"}\n'
    '{"input": "hi", "reply": "fine", "dialogue": 7}\n',
    "lines": "hello\nhi\nfine\n\n\nalone\n\nbye\nbye now\n",
}
EXPECTED = {
    "pairs-tsv": ([("hello", "hi there"), ("hi there", "how are you"), ("bye", "bye")], 2),
    "pairs-jsonl": ([("hello", "hi"), ("yo", "hey"), ("hi", "fine")], 2),
    "lines": ([("hello", "hi"), ("hi", "fine"), ("bye", "bye now")], 2),
}


@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize("zipped", [False, True])
def test_every_format_is_detected_and_read(tmp_path: Path, format: str, zipped: bool) -> None:
    path = tmp_path / ("file.gz" if zipped else "file")
    content = FILES[format].encode()
    path.write_bytes(gzip.compress(content) if zipped else content)
    assert detect_format(str(path)) == format
    corpus = read_corpus(str(path))
    assert corpus == read_corpus(str(path), format)
    pairs, groups = EXPECTED[format]
    assert corpus.pairs() == pairs
    assert len(set(corpus.groups)) == groups
    assert len(corpus.groups) == len(corpus.dialogues)
    assert not corpus.fixed_test


def test_every_format_has_a_test() -> None:
    assert {*FILES, "chitchat", "chitchat-first"} <= set(FORMATS)


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(b"\xef\xbb\xbfhello\thi\r\nyo\they\r\n")
    assert read_corpus(str(path)).pairs() == [("hello", "hi"), ("yo", "hey")]


def test_pairs_of_takes_one_turn_of_context() -> None:
    assert pairs_of((Turn("A", "1"), Turn("B", "2"), Turn("A", "3"))) == [("1", "2"), ("2", "3")]
    assert pairs_of((Turn("A", "1"),)) == []


class FakeChitchat:
    """Stands in for the package: two chats, one of them without a reply."""

    class Dataset(dict[str, object]):
        def __init__(self) -> None:
            def said(sender: str, text: str) -> dict[str, str]:
                return {"sender": sender, "text": text}

            super().__init__(
                one={"messages": [[said("x", "hi "), said("x", "there")], [said("y", " "), said("y", "yo")]]},
                two={"messages": [[said("x", "anyone?")]]},
            )


def test_chitchat_joins_the_messages_of_one_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chitchat_dataset", FakeChitchat)
    corpus = read_corpus("chitchat")
    assert corpus.dialogues == ((Turn("x", "hi there"), Turn("y", "yo")),)
    assert corpus.groups == ("one",)


def test_chitchat_first_answers_with_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chitchat_dataset", FakeChitchat)
    chat = FakeChitchat.Dataset()
    chat["one"] = {
        "messages": [
            [{"sender": sender, "text": text} for sender, text in said]
            for said in ([("x", "hi"), ("x", "there")], [("y", "yo"), ("y", "how are you")], [("x", "fine")])
        ]
    }
    monkeypatch.setattr(FakeChitchat, "Dataset", lambda: chat)
    corpus = read_corpus("chitchat", "chitchat-first")
    assert corpus.pairs() == [("hi there", "yo"), ("yo how are you", "fine")]
    assert corpus.groups == ("one", "one")
    assert corpus.name == "chitchat"
    texts = {text for pair in corpus.pairs() for text in pair}
    assert chitchat_texts.__wrapped__() == texts == {"hi there", "yo", "yo how are you", "fine"}


def test_chitchat_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "chitchat_dataset", None)
    with pytest.raises(InputError, match=r"pip install 'backtalk\[data\]'"):
        read_corpus("chitchat")


@pytest.mark.parametrize(
    ("format", "content", "message"),
    [
        ("auto", b"", r"file is empty"),
        ("lines", b" \n\n", r"file is empty"),
        ("auto", b"hello\n\x00\x01\n", r"file, line 2: this is a binary file"),
        ("lines", b"hello\nhi\n\xff\n", r"file, line 3: not UTF-8"),
        ("auto", b"\x1f\x8bnot gzip", r"file is a damaged gzip file"),
        (
            "pairs-tsv",
            b"a\tb\nno tab\n",
            r"file, line 2: 1 columns between tabs instead of 2 \(input, reply\)",
        ),
        ("pairs-tsv", b"a\t \n", r"file, line 1: an empty reply"),
        ("pairs-tsv", b" \ta\n", r"file, line 1: an empty input"),
        ("pairs-jsonl", b'{"input": "a"\n', r"file, line 1: not JSON"),
        (
            "pairs-jsonl",
            b'{"input": "a", "reply": "b"}\n{"input": "a"}\n',
            r'line 2: not an object .* "reply"',
        ),
        ("pairs-jsonl", b"[]\n", r"line 1: not an object"),
        ("lines", b"alone\n\nalone\n", r"holds no dialogue of two or more turns \(read as lines\)"),
    ],
)
def test_bad_files(tmp_path: Path, format: str, content: bytes, message: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_corpus(str(path), format)


def test_missing_file_folder_and_format(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file .*nothing\.tsv"):
        read_corpus(str(tmp_path / "nothing.tsv"))
    for format in ("auto", "lines", "pairs-jsonl"):
        with pytest.raises(InputError, match="is a folder"):
            read_corpus(str(tmp_path), format)
    with pytest.raises(InputError, match="did you mean 'pairs-tsv'"):
        read_corpus("x", "pair-tsv")
