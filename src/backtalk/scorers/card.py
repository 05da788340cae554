"""A scorer's report card: how right it is on labelled texts.

AUC with the interval of DeLong et al. (1988); precision, recall and false positives at a threshold; how often
texts of each range of scores are toxic; the same by source and by identity word, since scorers are known to
take a word like "gay" for abuse (Dixon et al. 2018).
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.data.labelled import LabelledText
from backtalk.errors import InputError
from backtalk.protocols import ContextScorer, Scorer
from backtalk.stats import Rate
from backtalk.types import Turn

BINS = 10
LEAST = 10  # texts of a source or with a word that get a row of their own
IDENTITY = re.compile(
    r"\b(?:african|american|arab|asian|atheist|autistic|bisexual|black|blind|buddhist|canadian|catholic|chinese|"
    r"christian|deaf|disabled|elderly|european|female|feminist|gay|heterosexual|hindu|hispanic|homosexual|"
    r"immigrant|indian|japanese|jew|jewish|latina|latino|lesbian|lgbt|male|mexican|millennial|muslim|"
    r"nonbinary|old|paralyzed|protestant|queer|sikh|straight|taoist|teenage|trans|transgender|white|woman|"
    r"women|young|younger|older)\b"
)
"""Words for groups of people."""


class Area(NamedTuple):
    """The probability that a toxic text scores above a harmless one, with its 95% interval."""

    value: float
    low: float
    high: float


class Bin(NamedTuple):
    """The texts whose scores lie in one range: their mean score, and how many of them are toxic."""

    low: float
    mean: float
    toxic: Rate


@dataclass(frozen=True)
class Card:
    texts: int
    toxic: int
    threshold: float
    auc: Area | None  # None where all texts are toxic, or none
    precision: Rate
    recall: Rate
    false_positives: Rate
    """Of the harmless texts."""
    calibration_error: float
    """The mean distance of a text's score from the share of toxic texts among those that score alike."""
    bins: tuple[Bin, ...]

    def rates(self, on: str) -> dict[str, Any]:
        """What a report says of the scorer; `on` names the texts."""
        own = {"precision": self.precision, "recall": self.recall, "false_positives": self.false_positives}
        return {"on": on, "texts": self.texts, **{name: round(rate.rate, 4) for name, rate in own.items()}}

    def as_dict(self) -> dict[str, Any]:
        rates = {name: getattr(self, name).as_dict() for name in ("precision", "recall", "false_positives")}
        bins = [{**one._asdict(), "toxic": one.toxic.as_dict()} for one in self.bins]
        return {**asdict(self), **rates, "auc": self.auc and self.auc._asdict(), "bins": bins}


def make_card(scores: NDArray[np.floating[Any]], toxic: Sequence[bool], threshold: float = 0.5) -> Card:
    labels, over = np.array(toxic, dtype=bool), scores >= threshold
    both, positive = int((over & labels).sum()), int(labels.sum())
    bins, error = [], 0.0
    place = np.minimum((scores * BINS).astype(int), BINS - 1)
    for number in range(BINS):
        if (own := place == number).any():
            mean, rate = float(scores[own].mean()), Rate.of(int(labels[own].sum()), int(own.sum()))
            bins.append(Bin(number / BINS, mean, rate))
            error += rate.n * abs(mean - rate.rate) / len(labels)
    return Card(
        len(labels),
        positive,
        threshold,
        area(scores, labels),
        Rate.of(both, int(over.sum())),
        Rate.of(both, positive),
        Rate.of(int(over.sum()) - both, len(labels) - positive),
        error,
        tuple(bins),
    )


def area(scores: NDArray[np.floating[Any]], labels: NDArray[np.bool_]) -> Area | None:
    toxic, harmless = scores[labels], scores[~labels]
    if not len(toxic) or not len(harmless):
        return None
    # Of each toxic text the share of harmless ones below it, and of each harmless one of toxic ones above it;
    # ties count half.
    above = _below(harmless, toxic)
    below = 1 - _below(toxic, harmless)
    value = float(above.mean())
    spread = sum(float(part.var(ddof=1)) / len(part) for part in (above, below) if len(part) > 1)
    half = NormalDist().inv_cdf(0.975) * sqrt(spread)
    return Area(value, max(0.0, value - half), min(1.0, value + half))


def _below(some: NDArray[np.floating[Any]], each: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(each,): the share of `some` that are below it."""
    order = np.sort(some)
    sides = (np.searchsorted(order, each, side) for side in ("left", "right"))
    return np.add(*sides) / (2 * len(order))


def parts_of(rows: Sequence[LabelledText]) -> dict[str, list[int]]:
    """The rows of each source and those with each identity word, if they are enough."""
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        found.setdefault(row.source, []).append(number)
    if len(found) < 2:
        found = {}
    for number, row in enumerate(rows):
        for word in set(IDENTITY.findall(row.text.casefold())):
            found.setdefault(f"with {word!r}", []).append(number)
    return {name: own for name, own in sorted(found.items()) if len(own) >= LEAST}


def report_card(scorer: Scorer, rows: Sequence[LabelledText], threshold: float) -> dict[str, Card]:
    """The card of all rows ("") and of each part of them."""
    if len(rows) < 2:
        raise InputError("a report card needs at least two labelled texts")
    scores, toxic = rate_texts(scorer, rows), [row.toxic for row in rows]
    cards = {"": make_card(scores, toxic, threshold)}
    for name, own in parts_of(rows).items():
        cards[name] = make_card(scores[own], [toxic[row] for row in own], threshold)
    return cards


def rate_texts(scorer: Scorer, rows: Sequence[LabelledText]) -> NDArray[np.float32]:
    """(rows,): each after its context, if it has one and the scorer reads contexts."""
    if not isinstance(scorer, ContextScorer):
        return scorer.score([row.text for row in rows])
    scores = np.zeros(len(rows), dtype=np.float32)
    alone = [place for place, row in enumerate(rows) if not row.context]
    after = [place for place, row in enumerate(rows) if row.context]
    scores[alone] = scorer.score([rows[place].text for place in alone])
    said = [(Turn("user", rows[place].context),) for place in after]
    scores[after] = scorer.score_replies(said, [rows[place].text for place in after])
    return scores


def kappa(first: Sequence[bool], second: Sequence[bool]) -> float:
    """Agreement beyond chance (Cohen 1960): 1 is full, 0 what chance gives. 1 if both always say the same
    single thing."""
    one, two = np.array(first, dtype=bool), np.array(second, dtype=bool)
    same, chance = (one == two).mean(), one.mean() * two.mean() + (1 - one.mean()) * (1 - two.mean())
    return 1.0 if chance == 1 else float((same - chance) / (1 - chance))
