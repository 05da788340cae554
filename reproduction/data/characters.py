"""The character task of He & Glass 2019, appendix B: noised words, and the four lists of things to say.

A model reads the characters of a word and writes those of the next. The paper adds noise so that there are
more than ten thousand inputs: in half of the words of the text one character becomes another one. Of its
"repeating" heuristic the paper shows one example, qwzqwzqwz; the lengths of ours are a choice.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import chain
from pathlib import Path

import numpy as np

from backtalk.data.textfiles import read_lines
from backtalk.errors import InputError, unknown

SYMBOLS = 33
"""The paper's vocabulary: as many of the text's most frequent characters may stand in for another."""
NOISE_SEED = 2019
CHUNK = (1, 3)  # symbols of a chunk that is repeated, from and to
REPEATED = (4, 10)  # symbols of a random sequence, from and to


def flip_characters(lines: Sequence[Sequence[str]], seed: int = NOISE_SEED) -> Iterator[list[str]]:
    """The words of each line; in every second one, on average, one character is another symbol at random."""
    symbols = frequent_symbols(chain.from_iterable(lines))
    rng = np.random.default_rng(seed)
    for words in lines:
        draws = rng.random((len(words), 3)).tolist()
        yield [
            _flip(word, place, other, symbols) if noise < 0.5 else word
            for word, (noise, place, other) in zip(words, draws, strict=True)
        ]


def frequent_symbols(words: Iterable[str], most: int = SYMBOLS) -> list[str]:
    """The most frequent characters, the first in the alphabet where they are equally frequent."""
    counts = Counter("".join(words))
    return [symbol for _, symbol in sorted((-n, symbol) for symbol, n in counts.items())[:most]]


def _flip(word: str, place: float, other: float, symbols: Sequence[str]) -> str:
    at = int(place * len(word))
    others = [symbol for symbol in symbols if symbol != word[at]]
    return word[:at] + others[int(other * len(others))] + word[at + 1 :] if others else word


# The four lists


def normal_list(text: Path) -> list[str]:
    """All words of a running text, once each, in order."""
    return list(dict.fromkeys(word for _, line in read_lines(text) for word in line.split()))


def reverse_list(normal: Sequence[str]) -> list[str]:
    """The words read backwards, less those that are words."""
    known = set(normal)
    return [word[::-1] for word in normal if word[::-1] not in known]


def random_list(
    normal: Iterable[str], symbols: Sequence[str], most: int = 18_000, seed: int = NOISE_SEED
) -> list[str]:
    """Distinct sequences that repeat a random chunk of symbols, none of them a word."""
    rng = np.random.default_rng(seed)
    known, found = set(normal), dict[str, None]()
    chunks = sum(len(symbols) ** size for size in range(CHUNK[0], CHUNK[1] + 1))
    # Of few symbols there are few sequences, and the last of them are long in coming.
    tries = 20 * most if chunks * (REPEATED[1] - REPEATED[0] + 1) >= most else 0
    for _ in range(tries):
        chunk = rng.integers(len(symbols), size=rng.integers(CHUNK[0], CHUNK[1] + 1)).tolist()
        length = rng.integers(REPEATED[0], REPEATED[1] + 1)
        made = "".join(symbols[chunk[i % len(chunk)]] for i in range(length))
        if made not in known:
            found[made] = None
        if len(found) == most:
            return list(found)
    raise InputError(f"{len(symbols)} symbols give fewer than {most:,} repeating sequences; ask for fewer")


def mal_list() -> list[str]:
    """The 500 rude sequences that ship, at most eleven letters each."""
    text = (files("reproduction") / "data" / "mal_characters.txt").read_text(encoding="utf-8")
    return text.split()


def read_lists(named: str, text: str, symbols: Sequence[str]) -> dict[str, list[str]]:
    """Lists by name: those that a running text gives, and those named by commas, NAME=FILE or mal."""
    found: dict[str, list[str]] = {}
    if text:
        normal = normal_list(Path(text))
        found = {"normal": normal, "reverse": reverse_list(normal), "random": random_list(normal, symbols)}
    for entry in filter(None, (part.strip() for part in named.split(","))):
        name, given, path = entry.partition("=")
        if not given and name != "mal":
            raise InputError(f"--lists: {unknown('list', name, ['mal'])} A file is named as {name}=FILE")
        if name in found:
            raise InputError(f"--lists names {name!r} twice; give each list a name of its own")
        found[name] = read_list(Path(path)) if given else mal_list()
    return found


def read_list(path: Path) -> list[str]:
    """The lines of a file, once each."""
    return list(dict.fromkeys(line.strip() for _, line in read_lines(path) if line.strip()))
