"""Target lists: what ships, what a user's file may hold, how lists are widened, split and drawn."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from backtalk.data.targets import (
    load_mal,
    one_per_prototype,
    read_targets,
    split_by_prototype,
    widen,
    write_targets,
)
from backtalk.errors import InputError
from backtalk.types import Target

CATEGORIES = {"rude", "threatening", "refusing", "self-deprecating"}
CONTRACTIONS = [
    (r"\bwon't\b", "will not"),
    (r"\bcan't\b", "can not"),
    (r"\bcannot\b", "can not"),
    (r"n't\b", " not"),
    (r"'m\b", " am"),
    (r"'re\b", " are"),
    (r"'ll\b", " will"),
    (r"'ve\b", " have"),
    (r"'d\b", " would"),
    (r"\bthat's\b", "that is"),
]


def spelled_out(text: str) -> str:
    for short, full in CONTRACTIONS:
        text = re.sub(short, full, text)
    return text


def proto(name: str, text: str, category: str = "rude", severity: int = 1) -> Target:
    return Target(name, text, category, severity, prototype=name)


# The embedded list


def test_mal_is_large_and_spread_over_the_categories() -> None:
    mal = load_mal()
    assert len(mal) >= 220
    counts = Counter(target.category for target in mal)
    assert set(counts) == CATEGORIES
    assert min(counts.values()) >= 45
    assert {target.severity for target in mal} == {1, 2, 3}
    assert set(Counter(t.category for t in mal[:40]).values()) == {10}  # a head of the list is balanced


def test_mal_ids_count_up_and_name_their_own_prototype() -> None:
    mal = load_mal()
    assert [target.id for target in mal] == [f"mal-{n:03d}" for n in range(1, len(mal) + 1)]
    assert all(target.prototype == target.id for target in mal)


def test_mal_is_plain_lower_case_words_of_two_to_seven() -> None:
    lengths = []
    for target in load_mal():
        assert re.fullmatch(r"[a-z]+('[a-z]+)?( [a-z]+('[a-z]+)?)*", target.text), target
        lengths.append(len(target.text.split()))
    assert 2 <= min(lengths) <= max(lengths) <= 7
    assert 3.5 < sum(lengths) / len(lengths) < 4.5


def test_mal_has_no_duplicates_even_spelled_out_and_widened() -> None:
    mal = load_mal()
    counts = Counter(spelled_out(target.text) for target in widen(mal, final_period=False))
    assert [text for text, count in counts.items() if count > 1] == []


def test_mal_words_are_everyday_words() -> None:
    chitchat = pytest.importorskip("chitchat_dataset")
    words: Counter[str] = Counter()
    for dialogue in chitchat.Dataset().values():
        for turn in dialogue["messages"]:
            for message in turn:
                words.update(re.findall(r"[a-z0-9]+(?:'[a-z]+)*", message["text"].lower().replace("’", "'")))
    frequent = {word for word, _ in words.most_common(5000)}
    mal = load_mal()
    assert sum(set(target.text.split()) <= frequent for target in mal) >= 0.95 * len(mal)


# Reading and writing


def test_read_text_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_bytes("\ufeffshut up\r\n\r\n  you  are\tslow \nc’est fini".encode())
    assert read_targets(file) == [
        Target("t-001", "shut up", "unspecified", 1, "t-001"),
        Target("t-002", "you are slow", "unspecified", 1, "t-002"),
        Target("t-003", "c’est fini", "unspecified", 1, "t-003"),
    ]


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.txt"])
def test_read_jsonl_by_name_or_content(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_text(
        '\n{"text": "go away", "category": "refusing", "severity": 2, "source": "ignored"}\n\n'
        '{"text": "oh go away", "id": "b", "prototype": "a"}\n'
        '{"text": "get out", "id": "t-002"}\n'
        '{"text": "be quiet\u2028now"}\n',
        encoding="utf-8",
    )
    assert read_targets(file) == [
        Target("t-001", "go away", "refusing", 2, "t-001"),
        Target("b", "oh go away", "unspecified", 1, "a"),
        Target("t-002", "get out", "unspecified", 1, "t-002"),
        Target("t-003", "be quiet now", "unspecified", 1, "t-003"),  # t-002 was taken
    ]


@pytest.mark.parametrize(
    ("content", "line", "facts"),
    [
        (b"", 0, ["empty"]),
        (b" \n\n\t\n", 0, ["empty"]),
        (b'{"text": "a"}\n\xff\xfe', 2, ["UTF-8"]),
        (b'{"text": "a"}\n\0\n', 2, ["binary"]),
        (b'{"text": "a"}\n\n{"text": ', 3, ["not JSON"]),
        (b"[" * 100_000, 1, ["not JSON"]),
        (b'["a", "b"]', 1, ['"text"', 'not ["a", "b"]']),
        (b'{"category": "rude"}', 1, ['no "text"']),
        (b'{"text": 3}', 1, ['"text"', "not 3"]),
        (b'{"text": null}', 1, ['"text"', "not null"]),
        (b'{"text": "  "}', 1, ['"text" is empty']),
        (b'{"text": "\\ud800"}', 1, ['"text"', "UTF-8"]),
        (b'{"text": "a", "category": ["x"]}', 1, ['"category"', 'not ["x"]']),
        (b'{"text": "a", "id": 7}', 1, ['"id"', "not 7"]),
        (b'{"text": "a", "prototype": {}}', 1, ['"prototype"', "not {}"]),
        (b'{"text": "a", "severity": 0}', 1, ['"severity"', "not 0"]),
        (b'{"text": "a", "severity": 4}', 1, ['"severity"', "not 4"]),
        (b'{"text": "a", "severity": "2"}', 1, ['"severity"', 'not "2"']),
        (b'{"text": "a", "severity": 1.5}', 1, ['"severity"', "not 1.5"]),
        (b'{"text": "a", "severity": true}', 1, ['"severity"', "not true"]),
        (b'{"text": "a", "id": "x"}\n\n{"text": "b", "id": "x"}', 3, ["'x'", "line 1"]),
    ],
)
def test_bad_file_is_one_sentence(tmp_path: Path, content: bytes, line: int, facts: list[str]) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_targets(file)
    said = str(caught.value)
    assert said.startswith(f"{file}, line {line}: " if line else str(file))
    assert "\n" not in said
    assert all(fact in said for fact in facts)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    missing = tmp_path / "none.txt"
    with pytest.raises(InputError, match=re.escape(f"no file {missing};")):
        read_targets(missing)
    with pytest.raises(InputError, match=re.escape(f"{tmp_path} is a folder")):
        read_targets(tmp_path)


def test_write_then_read_gives_the_same_targets(tmp_path: Path) -> None:
    targets = [*widen(load_mal(), final_period=True), proto("x", 'say "c’est fini" \\ {now}')]
    file = tmp_path / "list.jsonl"
    file.write_text("old")
    write_targets(file, targets)
    assert read_targets(file) == targets
    assert list(tmp_path.iterdir()) == [file]


def test_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "list.jsonl"
    write_targets(file, [proto("a", "go away")])
    half = (proto("b", text) for text in ["be quiet", "\ud800"])
    with pytest.raises(UnicodeEncodeError):
        write_targets(file, half)
    assert [target.id for target in read_targets(file)] == ["a"]
    assert list(tmp_path.iterdir()) == [file]


def test_write_where_nothing_can_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    for path, why in [
        (tmp_path / "none" / "x.jsonl", "No such file or directory"),
        (blocked / "x.jsonl", "Not a directory"),
    ]:
        with pytest.raises(InputError, match=re.escape(f"{path}: {why}")):
            write_targets(path, [proto("a", "go away")])


# Widening


def test_widen_by_hand() -> None:
    prototypes = [proto("a", "go away", "refusing", 2), proto("b", "oh be quiet")]
    assert [(t.id, t.text) for t in widen(prototypes, final_period=True)] == [
        ("a", "go away"),
        ("b", "oh be quiet"),
        ("a-well", "well go away"),
        ("b-well", "well oh be quiet"),
        ("a-oh", "oh go away"),
        ("a-i-think", "i think go away"),
        ("a-period", "go away ."),
        ("b-period", "oh be quiet ."),
    ]
    without = widen(prototypes, final_period=False)
    assert [(t.id, t.text) for t in without[-2:]] == [("a-and", "and go away"), ("b-and", "and oh be quiet")]
    assert {(t.prototype, t.category, t.severity) for t in without} == {
        ("a", "refusing", 2),
        ("b", "rude", 1),
    }


def test_widen_drops_doubles_and_keeps_the_prototype() -> None:
    prototypes = [
        proto("a", "you are wrong"),
        proto("b", "i think you are wrong"),
        proto("c", "well well no ."),
    ]
    widened = widen(prototypes, final_period=True)
    texts = [target.text for target in widened]
    assert len(set(texts)) == len(texts)
    assert "b" in [target.id for target in widened]
    assert "a-i-think" not in [target.id for target in widened]
    assert not any(re.match(r"(i think i think|oh oh|well well well|i think well)", text) for text in texts)
    assert "well well no . ." not in texts
    assert "oh ohio is bad" in [t.text for t in widen([proto("o", "ohio is bad")], final_period=True)]


@pytest.mark.parametrize("final_period", [True, False])
def test_widened_mal_has_over_a_thousand_of_distinct_id_and_text(final_period: bool) -> None:
    mal = load_mal()
    widened = widen(mal, final_period)
    assert len(widened) >= 1000
    assert len({t.id for t in widened}) == len({t.text for t in widened}) == len(widened)
    assert {t.prototype for t in widened} == {t.id for t in mal}
    assert any(t.text.endswith(" .") for t in widened) == final_period
    assert widen(mal, final_period, limit=300) == widened[:300]
    assert widen(widened, final_period)[: len(widened)] == widened


# Splitting


def test_split_keeps_prototypes_together_and_categories_in_proportion() -> None:
    mal = load_mal()
    targets = widen(mal, final_period=True)
    parts = split_by_prototype(targets, [0.5, 0.3, 0.2], seed=1)
    families = [{t.prototype for t in part} for part in parts]
    assert sum(map(len, families)) == len(set().union(*families)) == len(mal)
    assert sorted(t.id for part in parts for t in part) == sorted(t.id for t in targets)
    for share, family in zip([0.5, 0.3, 0.2], families, strict=True):
        assert len(family) == pytest.approx(share * len(mal), abs=1)
        for category, total in Counter(t.category for t in mal).items():
            mine = sum(t.id in family for t in mal if t.category == category)
            assert mine == pytest.approx(share * total, abs=2)


def test_split_depends_on_seed_and_prototypes_alone() -> None:
    mal = load_mal()

    def families(targets: list[Target], seed: int) -> list[set[str]]:
        return [{t.prototype for t in part} for part in split_by_prototype(targets, [0.5, 0.5], seed)]

    assert families(mal, 3) == families(widen(mal, final_period=True), 3) == families(mal[::-1], 3)
    assert families(mal, 3) != families(mal, 4)


def test_split_of_many_tiny_categories_still_follows_the_shares() -> None:
    targets = [proto(f"p{n}", f"text {n}", category=f"c{n}") for n in range(10)]
    assert [len(part) for part in split_by_prototype(targets, [8, 2], seed=0)] == [8, 2]
    assert [len(part) for part in split_by_prototype(targets, [1, 0], seed=0)] == [10, 0]
    assert split_by_prototype([], [1, 1], seed=0) == [[], []]


def test_targets_without_prototype_are_their_own() -> None:
    targets = [Target("a", "go away"), Target("b", "be quiet")]
    assert [len(part) for part in split_by_prototype(targets, [1, 1], seed=0)] == [1, 1]
    assert one_per_prototype(targets) == targets
    assert {t.prototype for t in widen(targets, final_period=True)} == {"a", "b"}


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [1.5, -0.5], [float("nan"), 1.0]])
def test_bad_shares(shares: list[float]) -> None:
    with pytest.raises(InputError, match="shares"):
        split_by_prototype(load_mal(), shares, seed=0)


def test_one_per_prototype_takes_the_first_variant() -> None:
    mal = load_mal()
    assert one_per_prototype(widen(mal, final_period=False)) == mal
    assert one_per_prototype(mal, limit=10_000) == mal
    assert one_per_prototype(mal, limit=0) == []


def test_one_per_prototype_limit_is_balanced_seeded_and_in_order() -> None:
    mal = load_mal()
    chosen = one_per_prototype(widen(mal, final_period=True), limit=42, seed=5)
    assert sorted(Counter(t.category for t in chosen).values()) == [10, 10, 11, 11]
    assert chosen == sorted(chosen, key=mal.index)
    assert chosen == one_per_prototype(mal, limit=42, seed=5)
    assert chosen != one_per_prototype(mal, limit=42, seed=6)
    scarce = [t for t in mal if t.category == "rude"] + [t for t in mal if t.category == "refusing"][:3]
    assert Counter(t.category for t in one_per_prototype(scarce, limit=20)) == {"rude": 17, "refusing": 3}


def test_shipped_file_is_read_as_a_users_file_would_be(tmp_path: Path) -> None:
    file = tmp_path / "mal.jsonl"
    rows = [{"id": t.id, "text": t.text, "category": t.category, "severity": t.severity} for t in load_mal()]
    file.write_text("\n".join(map(json.dumps, rows)))
    assert read_targets(file) == load_mal()
