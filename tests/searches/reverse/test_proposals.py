"""What is asked for a target: nearest replies, draws by the case alone, utterances and their order."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.scorers.similarity import WordVectors, load_vectors
from backtalk.searches.reverse import training
from backtalk.searches.reverse.searches import Drawn, Retrieved
from backtalk.searches.reverse.training import MOST_WORDS, read_utterances
from backtalk.types import Target
from tests.searches.reverse.worlds import UTTERANCES, build_world

BORING, AWAY = Target("a", "you are so boring"), Target("b", "go away")


@pytest.fixture
def vectors(tmp_path: Path) -> WordVectors:
    build_world(tmp_path)
    return load_vectors(str(tmp_path / "vectors.txt"))


def test_retrieval_puts_the_nearest_reply_first(vectors: WordVectors) -> None:
    pairs = [
        ("i like cats", "one"),
        ("you are so fine", "two"),  # 3 of 4 words: 0.75
        ("you are so boring", "three"),  # 1
        ("you are so boring", "asked later with the same reply"),
        ("go go away", "four"),  # 3 / (sqrt 2 sqrt 5) = 0.95
        ("away", "five"),  # 1 / sqrt 2 = 0.71
        ("go away now", "six"),  # 2 / sqrt 6 = 0.82
    ]
    boring, away = Retrieved(pairs, vectors).nearest([BORING, AWAY])
    assert boring[:2] == ["three", "two"]
    assert away[:3] == ["four", "six", "five"]
    assert "asked later with the same reply" not in boring


def test_draws_depend_on_seed_and_case_alone() -> None:
    together = Drawn(UTTERANCES, 1).propose([BORING, AWAY], 5)
    assert Drawn(UTTERANCES, 1).propose([AWAY], 5) == together[1:]
    assert together[0] != together[1]
    assert Drawn(UTTERANCES, 2).propose([AWAY], 5) != together[1:]
    assert all(len(set(row.new)) == 5 and not row.known for row in together)


def test_no_more_are_drawn_than_there_are() -> None:
    assert sorted(Drawn(["one", "two"], 1).propose([BORING], 5)[0].new) == ["one", "two"]


def test_utterances_of_a_file_are_different_short_and_shuffled(tmp_path: Path) -> None:
    lines = ["hello there", "hello   there", "", "...", "word " * (MOST_WORDS + 1), "how are you", "fine"]
    (tmp_path / "said.txt").write_text("\n".join(lines))
    found = read_utterances(str(tmp_path / "said.txt"), 1)
    assert sorted(found.texts) == ["fine", "hello there", "how are you"]
    build_world(tmp_path)
    first, same, other = (read_utterances(str(tmp_path / "said.txt"), seed) for seed in (1, 1, 2))
    assert first == same
    assert first.texts != other.texts
    assert sorted(first.texts) == sorted(other.texts) == sorted(UTTERANCES)
    assert first.fingerprint != other.fingerprint  # another order is asked


def test_utterances_may_come_as_pairs(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text('{"input": "how are you", "reply": "fine"}\n' * 2)
    assert sorted(read_utterances(str(tmp_path / "pairs.jsonl"), 1).texts) == ["fine", "how are you"]


def test_a_file_without_utterances_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text("...\n")
    with pytest.raises(InputError, match="no utterance"):
        read_utterances(str(tmp_path / "said.txt"), 1)


def test_what_ships_will_do_where_the_corpus_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "find_spec", lambda name: None)
    found = read_utterances("", 1)
    assert len(found.texts) > 1000
    assert "shipped" in found.source
