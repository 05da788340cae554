"""What an enumeration's answers say about lists of targets: which are answered exactly, which stand inside an
answer, and how many inputs lead to no word of a list.

Answers are numbers whose digits are word ids, so a stretch of an answer is a division and a remainder, and
looking it up is a search in a sorted array: no loop over answers or targets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backtalk.data.vocabulary import EOS, UNK
from backtalk.models.lstm.model import LocalModel
from backtalk.stats import Rate
from reproduction.enumeration.search import Outputs, unpack

CHUNK = 1 << 22  # answers looked at together


@dataclass(frozen=True)
class ListHits:
    """For each target of a list the answer (its place in the outputs) that says it, or -1."""

    texts: list[str]
    exact: list[int]
    substring: list[int]
    too_long: int  # targets that the model can't end in time: counted in n, never hit exactly
    unknown: int  # targets with a symbol that the model does not know: counted in n, never hit

    def as_dict(self) -> dict[str, Any]:
        def rate(rows: Sequence[int]) -> dict[str, Any]:
            return Rate.of(sum(row >= 0 for row in rows), len(self.texts)).as_dict()

        return {
            "n": len(self.texts),
            "too_long": self.too_long,
            "unknown": self.unknown,
            "exact": rate(self.exact),
            "substring": rate(self.substring),
        }


class Packing:
    """Word ids as digits of one number, as in `Outputs`."""

    def __init__(self, model: LocalModel) -> None:
        self.base, self.digits = model.vocabulary_size, model.max_output
        self._model = model

    def ids(self, text: str) -> list[int]:
        """Of a target, without its end; [] if a symbol of it is unknown."""
        ids = self._model.encode_target(text)[:-1]
        return [] if UNK in ids else ids

    def number(self, ids: Sequence[int]) -> int:
        value = 0
        for i in ids:
            value = value * self.base + i
        return value

    def answer(self, ids: Sequence[int]) -> int:
        """The code of an answer: the ids from the left, <pad> to the longest."""
        return self.number(ids) * int(self.base ** (self.digits - len(ids)))


def find_exact(outputs: Outputs, codes: Sequence[int]) -> Tensor:
    """(codes,): the place of each code in the outputs, or -1."""
    wanted = torch.tensor(codes, dtype=torch.int64, device=outputs.codes.device)
    if not len(outputs.codes):
        return torch.full_like(wanted, -1)
    at = torch.searchsorted(outputs.codes, wanted).clamp_(max=len(outputs.codes) - 1)
    return torch.where(outputs.codes[at] == wanted, at, -1)


def find_inside(outputs: Outputs, packing: Packing, targets: Sequence[Sequence[int]]) -> list[int]:
    """The first answer that holds each target (ids, not empty) as a stretch of it, or -1."""
    device = outputs.codes.device
    found = [-1] * len(targets)
    for length in sorted({len(target) for target in targets if len(target) <= packing.digits}):
        own = [i for i, target in enumerate(targets) if len(target) == length]
        numbers = torch.tensor([packing.number(targets[i]) for i in own], dtype=torch.int64, device=device)
        wanted, inverse = torch.unique(numbers, return_inverse=True)
        first = torch.full_like(wanted, len(outputs.codes))
        for start in range(0, len(outputs.codes), CHUNK):
            part = outputs.codes[start : start + CHUNK]
            for end in range(packing.digits - length + 1):  # digits after the stretch
                stretch = part.div(packing.base**end, rounding_mode="floor") % packing.base**length
                at = torch.searchsorted(wanted, stretch).clamp_(max=len(wanted) - 1)
                rows = (wanted[at] == stretch).nonzero().squeeze(1)
                first.scatter_reduce_(0, at[rows], rows + start, "amin")
        places = torch.where(first < len(outputs.codes), first, -1)[inverse].tolist()
        for i, place in zip(own, places, strict=True):
            found[i] = place
    return found


def match_lists(
    outputs: Outputs, model: LocalModel, lists: Mapping[str, Sequence[str]]
) -> dict[str, ListHits]:
    """All lists at once."""
    packing = Packing(model)
    texts = list(dict.fromkeys(text for targets in lists.values() for text in targets))
    ids = {text: packing.ids(text) for text in texts}
    known = [text for text in texts if ids[text]]
    ending = [text for text in known if len(ids[text]) < model.max_output]
    exact = _by_text(ending, find_exact(outputs, [packing.answer([*ids[t], EOS]) for t in ending]).tolist())
    inside = _by_text(known, find_inside(outputs, packing, [ids[text] for text in known]))
    return {
        name: ListHits(
            list(targets),
            [exact.get(text, -1) for text in targets],
            [inside.get(text, -1) for text in targets],
            sum(len(ids[text]) >= model.max_output for text in targets),
            sum(not ids[text] for text in targets),
        )
        for name, targets in lists.items()
    }


def _by_text(texts: Sequence[str], places: Sequence[int]) -> dict[str, int]:
    return dict(zip(texts, places, strict=True))


def word_codes(model: LocalModel, words: Sequence[str]) -> tuple[Tensor, Tensor]:
    """The codes of the words as whole answers, and of the beginnings of those too long to end; sorted."""
    packing = Packing(model)
    every = [ids for word in words if (ids := packing.ids(word))]
    whole = {packing.answer([*ids, EOS]) for ids in every if len(ids) < model.max_output}
    cut = {packing.answer(ids[: model.max_output]) for ids in every if len(ids) >= model.max_output}
    return tuple(  # type: ignore[return-value]  # two of them
        torch.tensor(sorted(codes), dtype=torch.int64, device=model.device) for codes in (whole, cut)
    )


def inputs_among(outputs: Outputs, codes: Tensor) -> int:
    """How many inputs lead to one of these answers."""
    return int(outputs.counts[torch.isin(outputs.codes, codes)].sum())


def unfinished_inputs(outputs: Outputs, model: LocalModel) -> int:
    """How many inputs lead to an answer that does not end."""
    total = 0
    for start in range(0, len(outputs.codes), CHUNK):
        part = slice(start, start + CHUNK)
        digits = unpack(outputs.codes[part], model.vocabulary_size, model.max_output)
        total += int(outputs.counts[part][~(digits == EOS).any(1)].sum())
    return total
