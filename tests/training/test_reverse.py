"""Pre-training of the reverse generator: what it learns, its settings, and resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.models.lstm.reverse import craft, load_generator
from backtalk.training.mle import Progress
from backtalk.training.reverse import PretrainConfig, pretrain
from tests.training.networks import CPU, same, weights

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = PretrainConfig(
    hidden=16, embedding=8, dropout=0.1, epochs=3, batch=8, lr=0.01, patience=0, least=1, max_words=4,
    checkpoint_s=0.0,
)  # fmt: skip
WORDS = "abcdef"
PAIRS = [
    (f"{reply} {reply}", said) for reply, said in zip(WORDS * 10, WORDS[1:] + WORDS[:1] * 55, strict=False)
]
PAIRS += [(f"{first} {second}", f"{second} {first}") for first in WORDS for second in WORDS]


class Killed(Exception):
    pass


def test_it_learns_to_write_the_input_of_a_reply(tmp_path: Path) -> None:
    things = ["cat", "dog", "hat", "car", "map"]
    pairs = [(f"a {word} {sign}", f"the {word} ?") for word in things for sign in ".!?,;:"]
    config = replace(TINY, hidden=32, dropout=0.0, epochs=20, batch=4, lr=0.02, checkpoint_s=60.0)
    generator = pretrain(pairs, config, tmp_path, CPU)
    assert craft(generator, ["A dog.", "a car !"], 1) == [["The dog?"], ["The car?"]]


def test_killed_at_any_report_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    reports: list[Progress] = []
    whole = pretrain(PAIRS, TINY, tmp_path / "whole", CPU, reports.append)
    assert len(reports) > 2
    for stop in range(len(reports)):
        left = iter(range(stop))

        def report(_: Progress) -> None:
            if next(left, None) is None:  # noqa: B023  # called while the loop stands here
                raise Killed

        folder = tmp_path / f"stopped-{stop}"
        with pytest.raises(Killed):
            pretrain(PAIRS, TINY, folder, CPU, report)
        assert not (folder / "card.json").exists(), "it is not finished"
        resumed = pretrain(PAIRS, TINY, folder, CPU)
        assert same(weights(whole.network), weights(resumed.network)), f"stopped at report {stop}"
        assert resumed.fingerprint == whole.fingerprint
        assert sorted(path.name for path in folder.iterdir()) == [
            "card.json", "config.json", "model.safetensors", "vocab.json"
        ]  # fmt: skip


def test_a_finished_one_is_loaded(tmp_path: Path) -> None:
    whole = pretrain(PAIRS, TINY, tmp_path, CPU)
    reports: list[Progress] = []
    again = pretrain(PAIRS, TINY, tmp_path, CPU, reports.append)
    assert reports == []
    assert same(weights(whole.network), weights(again.network))
    assert load_generator(tmp_path, "cpu").fingerprint == whole.fingerprint == again.fingerprint


def test_other_pairs_or_settings_are_refused(tmp_path: Path) -> None:
    pretrain(PAIRS, TINY, tmp_path, CPU)
    for pairs, config in ((PAIRS[1:], TINY), (PAIRS, replace(TINY, hidden=17))):
        with pytest.raises(InputError, match="--fresh"):
            pretrain(pairs, config, tmp_path, CPU)
    pretrain(PAIRS, replace(TINY, checkpoint_s=9.0), tmp_path, CPU)


def test_rare_words_are_unknown_and_never_written(tmp_path: Path) -> None:
    pairs = [*PAIRS, ("rarest word", "rarest word")]
    generator = pretrain(pairs, replace(TINY, least=3, epochs=1), tmp_path, CPU)
    assert "rarest" not in generator.vocabulary
    assert set(generator.vocabulary.entries) == set(WORDS)


def test_too_few_pairs_are_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="1 pairs"):
        pretrain([("a", "b")] * 100, TINY, tmp_path, CPU)


def test_pairs_without_words_are_left_out(tmp_path: Path) -> None:
    empty = [("", "a"), ("a", " "), ("\u200b", "b")]
    first = pretrain([*empty, *PAIRS, *empty], replace(TINY, epochs=1), tmp_path / "a", CPU)
    assert first.fingerprint == pretrain(PAIRS, replace(TINY, epochs=1), tmp_path / "b", CPU).fingerprint
    with pytest.raises(InputError, match="0 pairs"):
        pretrain([(" " * i, "a") for i in range(99)], TINY, tmp_path / "c", CPU)


def test_the_papers_network_trains(tmp_path: Path) -> None:
    config = replace(TINY, layers=2, attention=False, lr=0.05, clip=0.25, batch=8)
    reports: list[Progress] = []
    pretrain(PAIRS, config, tmp_path, CPU, reports.append)
    found = [report.valid_perplexity for report in reports if report.valid_perplexity is not None]
    assert min(found) < len(WORDS) + 4, "better than guessing"
