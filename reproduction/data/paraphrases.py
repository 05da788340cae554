"""Pairs of sentences that say the same, to train a paraphraser: ParaDetox (Logacheva et al. 2022), Tatoeba.

ParaDetox gives a toxic sentence and up to three neutral rewrites. We pair the rewrites with each other and
leave the toxic sentence out: source to rewrite would teach a model to drop the very rudeness that a target is
about, rewrite to source to add some that was not there. Tatoeba gives English and Spanish sentences: two
English ones with the same Spanish one are a pair. Spanish leaves pronouns out, so pairs that speak of other
persons ("his nose is bleeding", "your nose is bleeding") are dropped. Pairs are read in both directions.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path

from backtalk.data.textfiles import read_lines
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.paraphrase.model import persons
from backtalk.types import Dialogue, Turn

PARADETOX, TATOEBA = "paradetox.tsv*", "spa.tsv*"
"""How the files are called in a folder that holds both."""
_WORDS = get_recipe("he-glass-2020").words


def read_paradetox(path: Path) -> Iterator[tuple[str, Dialogue]]:
    """Rewrites of one source with each other; a source with all its rewrites is a group."""
    # Some fields hold line breaks and are quoted, so this is CSV with tabs.
    lines = (f"{line}\n" for _, line in read_lines(_file(path, PARADETOX)))
    rows = csv.reader(lines, delimiter="\t")
    try:
        for number, row in enumerate(rows, start=1):
            if number == 1 and row[:2] == ["toxic", "neutral1"]:
                continue
            if len(row) < 2:
                raise InputError(
                    f"{path}, line {rows.line_num}: no tab between a toxic sentence and its rewrites"
                )
            yield from _both_ways(f"paradetox {number}", row[1:])
    except csv.Error as error:
        raise InputError(f"{path}, line {rows.line_num}: {error}") from None


def read_tatoeba(path: Path) -> Iterator[tuple[str, Dialogue]]:
    """English sentences with the same Spanish one; what hangs together by any of them is a group."""
    english_of: dict[str, dict[str, None]] = {}  # a dict keeps the order and drops what is there twice
    file = _file(path, TATOEBA)
    for number, line in read_lines(file):
        if not line.strip():
            continue
        english, *rest = line.split("\t")
        if not rest or not english.strip() or not rest[0].strip():
            raise InputError(f"{file}, line {number}: no tab between an English and a Spanish sentence")
        english_of.setdefault(" ".join(rest[0].split()), {})[" ".join(english.split())] = None
    group_of = _joined(english_of.values())
    seen: set[tuple[str, str]] = set()
    for sentences in english_of.values():
        for pair in combinations(sentences, 2):
            if pair not in seen and pair[::-1] not in seen:
                seen.add(pair)
                yield from _both_ways(f"tatoeba {group_of[pair[0]]}", pair)


def read_folder(path: Path) -> Iterator[tuple[str, Dialogue]]:
    """Both, from a folder that holds paradetox.tsv and spa.tsv, plain or gzipped."""
    if not path.is_dir():
        raise InputError(f"{path} is no folder; put paradetox.tsv and spa.tsv into one")
    yield from read_paradetox(path)
    yield from read_tatoeba(path)


def _both_ways(group: str, sentences: Sequence[str]) -> Iterator[tuple[str, Dialogue]]:
    spoken = {tuple(_WORDS(text)): " ".join(text.split()) for text in reversed(sentences)}
    spoken.pop((), None)
    for (first, a), (second, b) in combinations(spoken.items(), 2):
        if persons(first) == persons(second):
            yield group, (Turn("A", a), Turn("B", b))
            yield group, (Turn("A", b), Turn("B", a))


def _joined(sets: Iterable[Iterable[str]]) -> dict[str, int]:
    number_of: dict[str, int] = {}
    members: dict[int, list[str]] = {}
    for number, own in enumerate(sets):
        members[number] = []
        for sentence in own:
            other = number_of.get(sentence, -1)
            moved = members.pop(other) if other not in (-1, number) else [sentence] if other == -1 else []
            members[number] += moved
            number_of.update(dict.fromkeys(moved, number))
    return number_of


def _file(path: Path, pattern: str) -> Path:
    if not path.is_dir():
        return path
    found = sorted(path.glob(pattern))
    if not found:
        raise InputError(f"{path} holds no {pattern.removesuffix('*')}; name the file itself")
    return found[0]
