"""Parts that share no group, the fixed test set of Switchboard, and corpora that are too small."""

from __future__ import annotations

import pytest

from backtalk.data.corpora import Corpus, split
from backtalk.errors import InputError
from backtalk.types import Turn


def corpus(groups: list[str], fixed: frozenset[str] = frozenset()) -> Corpus:
    dialogues = tuple((Turn("A", f"{group} {i}"), Turn("B", "yes")) for i, group in enumerate(groups))
    return Corpus("made-up", "none", dialogues, tuple(groups), fixed)


def test_parts_are_whole_and_share_no_group() -> None:
    made = corpus([str(i // 3) for i in range(300)])
    parts = split(made, seed=0, valid=0.1, test=0.2)
    assert [len(set(part.groups)) for part in parts] == [70, 10, 20]
    assert sorted(d for part in parts for d in part.dialogues) == sorted(made.dialogues)
    for part in parts:
        assert all(
            d[0].text.split()[0] == group for d, group in zip(part.dialogues, part.groups, strict=True)
        )


def test_the_seed_decides() -> None:
    made = corpus([str(i) for i in range(100)])
    assert split(made, seed=3) == split(made, seed=3)
    assert split(made, seed=3) != split(made, seed=4)


def test_the_fixed_test_set_is_kept() -> None:
    made = corpus([str(i) for i in range(40)], fixed=frozenset({"7", "9", "never seen"}))
    for seed in range(5):
        parts = split(made, seed=seed, valid=0.1, test=0.5)
        assert parts.test.groups == ("7", "9")
        assert len(parts.valid.groups) == 4
        assert not {"7", "9"} & {*parts.train.groups, *parts.valid.groups}


@pytest.mark.parametrize("size", [3, 4, 5])
def test_each_part_gets_something(size: int) -> None:
    parts = split(corpus([str(i) for i in range(size)]), seed=0, valid=0.49, test=0.49)
    assert all(part.dialogues for part in parts)


def test_too_few_dialogues() -> None:
    with pytest.raises(InputError, match="2 of at least 3"):
        split(corpus(["a", "b", "b"]), seed=0)
    with pytest.raises(InputError, match=r"1 of at least 2"):
        split(corpus(["a", "b"], fixed=frozenset({"a"})), seed=0)


@pytest.mark.parametrize(("valid", "test"), [(0.0, 0.1), (0.5, 0.5), (-0.1, 0.2)])
def test_bad_shares(valid: float, test: float) -> None:
    with pytest.raises(InputError, match=f"valid={valid}"):
        split(corpus(["a", "b", "c"]), seed=0, valid=valid, test=test)
