"""Words to ids. Ids 0 to 3 are special tokens, which no text holds: "<pad>" in a text is an unknown word."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backtalk.data.textfiles import parse_json
from backtalk.errors import InputError
from backtalk.output_file import write_whole

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")
_FORMAT = "backtalk-vocabulary-1"


@dataclass(frozen=True)
class Vocabulary:
    """The words that a model knows, most frequent first; the first of them has id 4."""

    entries: tuple[str, ...]  # the words without the four specials
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = {word: i for i, word in enumerate(self.entries, start=len(SPECIALS))}
        if len(ids) < len(self.entries):
            twice = next(word for word, n in Counter(self.entries).items() if n > 1)
            raise InputError(f"the vocabulary holds {twice!r} twice; keep one of them")
        if reserved := [word for word in SPECIALS if word in ids]:
            raise InputError(f"the vocabulary holds the reserved word {reserved[0]!r}; leave it out")
        object.__setattr__(self, "_ids", ids)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int], size: int) -> "Vocabulary":
        """The `size` most frequent words (the specials not counted); of equally frequent words, the first in
        the alphabet."""
        ranked = sorted((-n, word) for word, n in counts.items() if word not in SPECIALS)
        return cls(tuple(word for _, word in ranked[:size]))

    def __len__(self) -> int:
        """The number of ids, with the specials."""
        return len(SPECIALS) + len(self.entries)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def ids(self, words: Iterable[str]) -> list[int]:
        """The id of each word, `UNK` for an unknown word."""
        return [self._ids.get(word, UNK) for word in words]

    def words(self, ids: Iterable[int]) -> list[str]:
        """The word of each id; specials are shown by name."""
        return [self._word(i) for i in ids]

    def unknown(self, words: Iterable[str]) -> list[str]:
        return [word for word in dict.fromkeys(words) if word not in self._ids]

    def _word(self, i: int) -> str:
        if not 0 <= i < len(self):
            raise IndexError(f"id {i} is outside a vocabulary of {len(self)}")
        return SPECIALS[i] if i < len(SPECIALS) else self.entries[i - len(SPECIALS)]

    def save(self, path: Path | str) -> None:
        record = {"format": _FORMAT, "words": self.entries}
        write_whole(Path(path), json.dumps(record, ensure_ascii=False, indent=0) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "Vocabulary":
        try:
            record = parse_json(Path(path).read_bytes(), str(path), "damaged or no vocabulary: not JSON")
        except OSError as error:
            raise InputError(f"cannot read the vocabulary {path}: {error.strerror}") from None
        words = record.get("words") if isinstance(record, dict) and record.get("format") == _FORMAT else None
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise InputError(f"{path} is damaged or no vocabulary: format {_FORMAT} with a list of words")
        try:
            return cls(tuple(words))
        except InputError as error:
            raise InputError(f"{path} is damaged: {error}") from None
