"""What a hardening cost: the same pairs under the model before and after it.

Perplexity with a paired bootstrap interval over pairs; max-ratio, Ent-n, distinct-n, length and BLEU-4 of the
greedy replies, beside those of the pairs' own replies (He & Glass 2020, Table 4); how much of the 10-best
lists stayed; and replies side by side.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.hardening.folder import SUMMARY
from backtalk.hardening.pairs import Pairs
from backtalk.hardening.shared import NOWHERE, Kept, Shared
from backtalk.models.local import LocalModel
from backtalk.scorers.bleu import bleu
from backtalk.scorers.diversity import Words, commonest, distinct, entropy, most_frequent, overlap
from backtalk.stats import Rate
from backtalk.terminal import printable
from backtalk.training.likelihood import perplexity, sentence_log_probs
from backtalk.types import Turn

RESAMPLES = 2000
BEST = 10
"""The length of the lists that are compared."""
LISTS = 100
"""Inputs at most whose lists are compared."""
SHOWN = 5


@dataclass(frozen=True)
class Cost:
    """(before, after) where there are two numbers."""

    pairs: int
    words: int
    """Reply tokens that the perplexities are of."""
    perplexity: tuple[float, float]
    rise_interval: tuple[float, float]
    """95%, of the relative rise of perplexity, over other pairs of the same kind."""
    commonest: tuple[int, int]
    """How often the most frequent reply is given: max-ratio, times the pairs."""
    ent_2: tuple[float, float]
    ent_3: tuple[float, float]
    distinct_1: tuple[float, float]
    distinct_2: tuple[float, float]
    bleu_4: tuple[float, float] | None
    """None where sacrebleu is not installed."""
    lists: int
    overlap: float
    """Of the 10-best lists."""
    same_replies: int
    """Greedy replies that are word for word what they were."""
    side_by_side: list[tuple[str, str, str]]
    """(input, reply before, reply after); the first pairs, unselected."""
    length: tuple[float, float]
    """Words of a reply, on average."""
    most_said: tuple[str, str]
    """The most frequent reply."""
    real: dict[str, float]
    """The same numbers of the pairs' own replies, by the names above."""
    real_most_said: str

    @property
    def rise(self) -> float:
        return self.perplexity[1] / self.perplexity[0] - 1


@dataclass(frozen=True)
class Side:
    """One model on the measured pairs."""

    sums: list[float]
    """log P of each whole reply."""
    said: list[list[str]]
    """The words of its greedy replies."""
    shown: list[str]
    """The first of them as people write them."""
    most_said: str
    lists: list[list[list[str]]]
    """The words of its 10-best lists; none where a model makes none."""


def measure_cost(before: LocalModel, after: LocalModel, pairs: Pairs, shared: Shared = NOWHERE) -> Cost:
    """Other hardenings of the model measure it on the same pairs: its side is `shared`."""
    real = [_words(before, before.encode_target(reply)) for _, reply in pairs.measured_texts]
    return compare_sides(
        _shared_side(before, pairs, shared),
        _side(after, pairs),
        (pairs.measured.replies != PAD).sum(1),
        [text for text, _ in pairs.measured_texts],
        real,
        _shown(before, real),
    )


def _shared_side(model: LocalModel, pairs: Pairs, shared: Shared) -> Side:
    def make() -> Kept:
        return {}, asdict(_side(model, pairs))

    def of() -> dict[str, Any]:
        arrays = b"".join(np.ascontiguousarray(part).tobytes() for part in pairs.measured)
        on_gpu = model.device.type == "cuda"
        return {
            "model": [model.fingerprint, asdict(model.network.config), model.max_input, model.max_output],
            "words": [model.recipe.name, list(model.vocabulary.entries)],
            "texts": pairs.measured_texts,
            "arrays": hashlib.sha256(arrays).hexdigest(),
            "device": torch.cuda.get_device_name(model.device) if on_gpu else model.device.type,
        }

    return Side(**shared.recall("side", of, make)[1])


@torch.no_grad()
def _side(model: LocalModel, pairs: Pairs) -> Side:
    dialogues = [(Turn("user", text),) for text, _ in pairs.measured_texts]
    ids = model.greedy_ids(model.encode_dialogues(dialogues))
    said = [_words(model, row) for row in ids]
    lists = [[text.split() for text, _ in row] for row in model.beams(dialogues[:LISTS], BEST)]
    sums = sentence_log_probs(model.network, pairs.measured, model.device).tolist()
    return Side(sums, said, [model.read(row) for row in ids[:SHOWN]], _shown(model, said), lists)


def compare_sides(
    before: Side,
    after: Side,
    lengths: NDArray[np.int64],
    inputs: Sequence[str],
    real: Sequence[Words],
    real_most_said: str,
) -> Cost:
    """`lengths` are the tokens of the pairs' own replies, `real` their words."""
    sums = [np.asarray(side.sums) for side in (before, after)]  # (pairs,) each
    said = (before.said, after.said)
    return Cost(
        pairs=len(inputs),
        words=int(lengths.sum()),
        perplexity=(_perplexity(sums[0], lengths), _perplexity(sums[1], lengths)),
        rise_interval=rise_interval(sums[0], sums[1], lengths),
        commonest=(commonest(said[0]), commonest(said[1])),
        ent_2=(entropy(said[0], 2), entropy(said[1], 2)),
        ent_3=(entropy(said[0], 3), entropy(said[1], 3)),
        distinct_1=(distinct(said[0], 1), distinct(said[1], 1)),
        distinct_2=(distinct(said[0], 2), distinct(said[1], 2)),
        bleu_4=_bleu(said[0], said[1], real),
        lists=len(before.lists),
        overlap=overlap(before.lists, after.lists),
        same_replies=sum(a == b for a, b in zip(said[0], said[1], strict=True)),
        side_by_side=list(zip(inputs[:SHOWN], before.shown, after.shown, strict=True)),
        length=(_length(said[0]), _length(said[1])),
        most_said=(before.most_said, after.most_said),
        real={
            "commonest": commonest(real),
            "ent_2": entropy(real, 2),
            "ent_3": entropy(real, 3),
            "distinct_1": distinct(real, 1),
            "distinct_2": distinct(real, 2),
            "length": _length(real),
        },
        real_most_said=real_most_said,
    )


def stored_cost(out: Path, fingerprint: str) -> Cost | None:
    """What a finished hardening's summary says of the model with that fingerprint; None where it says nothing
    of it."""
    try:
        summary = json.loads((out / SUMMARY).read_text(encoding="utf-8"))
        return Cost(**summary["cost"]) if summary["fingerprint"] == fingerprint else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def rise_interval(
    before: NDArray[np.float64], after: NDArray[np.float64], lengths: NDArray[np.int64]
) -> tuple[float, float]:
    """95% interval of perplexity after / before - 1 by resampling pairs, each with both of its sums."""
    draw = np.random.default_rng(0)
    rises = np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        rows = draw.integers(0, len(lengths), len(lengths))
        rises[i] = math.expm1((before[rows].sum() - after[rows].sum()) / lengths[rows].sum())
    low, high = np.quantile(rises, (0.025, 0.975))
    return float(low), float(high)


def print_cost(cost: Cost, bound: float, console: Console) -> None:
    table = Table(title=f"What it cost, on {cost.pairs:,} pairs that were not trained on")
    for name in ("", "before", "after", "real replies", ""):
        table.add_column(name, justify="right" if name else "left")
    low, high = cost.rise_interval
    table.add_row(
        "perplexity",
        *(f"{value:.2f}" for value in cost.perplexity),
        "",
        f"{cost.rise:+.1%} (95%: {low:+.1%} to {high:+.1%}; {cost.words:,} words); "
        + ("no bound" if math.isinf(bound) else f"bound {bound:+.1%}"),
    )
    ratios = [Rate.of(count, cost.pairs) for count in cost.commonest]
    table.add_row(
        "max-ratio",
        *(f"{ratio.rate:.1%}" for ratio in ratios),
        f"{cost.real['commonest'] / cost.pairs:.1%}",
        f"95%: {ratios[0].low:.1%} to {ratios[0].high:.1%}, {ratios[1].low:.1%} to {ratios[1].high:.1%}",
    )
    for name, values, real in (
        ("Ent-2", cost.ent_2, cost.real["ent_2"]),
        ("Ent-3", cost.ent_3, cost.real["ent_3"]),
        ("distinct-1", cost.distinct_1, cost.real["distinct_1"]),
        ("distinct-2", cost.distinct_2, cost.real["distinct_2"]),
        ("words a reply", cost.length, cost.real["length"]),
    ):
        table.add_row(name, *(f"{value:.3f}" for value in (*values, real)), "")
    if cost.bleu_4 is None:
        table.add_row("BLEU-4", "-", "-", "", "needs sacrebleu: pip install 'backtalk[harden]'")
    else:
        table.add_row("BLEU-4", *(f"{value:.2f}" for value in cost.bleu_4), "", "")
    same = Rate.of(cost.same_replies, cost.pairs)
    table.add_row("same reply", "", f"{same.rate:.1%}", "", f"95%: {same.low:.1%} to {same.high:.1%}")
    if cost.lists:
        table.add_row(f"{BEST}-best overlap", "", f"{cost.overlap:.1%}", "", f"of {cost.lists} inputs")
    console.print(table)
    most = [Text(printable(text)) for text in (*cost.most_said, cost.real_most_said)]
    console.print("Said most often:", most[0], "(before),", most[1], "(after),", most[2], "(real replies).")
    replies = Table(title="Replies, unselected")
    for name in ("input", "before", "after"):
        replies.add_column(name, ratio=1)
    for row in cost.side_by_side:
        replies.add_row(*(Text(printable(text)) for text in row))
    console.print(replies)


def _perplexity(sums: NDArray[np.float64], lengths: NDArray[np.int64]) -> float:
    return perplexity(float(sums.sum() / lengths.sum()))


def _words(model: LocalModel, ids: Sequence[int]) -> list[str]:
    return model.vocabulary.words([i for i in ids if i not in (PAD, EOS)])


def _length(replies: Sequence[Words]) -> float:
    return sum(map(len, replies)) / len(replies)


def _shown(model: LocalModel, replies: Sequence[Words]) -> str:
    """The most frequent reply as people write it."""
    return model.recipe.show(most_frequent(replies))


def _bleu(
    before: Sequence[Words], after: Sequence[Words], real: Sequence[Words]
) -> tuple[float, float] | None:
    try:
        return bleu(before, real), bleu(after, real)
    except InputError:
        return None
