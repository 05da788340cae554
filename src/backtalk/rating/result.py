"""What the answers come to: tie / first / second as in Table 6, the sign test, raters and their agreement.

A pair counts once however many judged it, so that intervals hold: its verdict is the choice that most raters
made, and a tie where no choice leads. Pairs of identical replies are ties too, once all others were seen;
before that they would outweigh them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from backtalk.rating.agreement import agreeing, cohen_kappa, krippendorff_alpha
from backtalk.rating.answers import Answer, standing
from backtalk.rating.folder import Ratings
from backtalk.stats import Rate, mcnemar_exact

VERDICTS = ("tie", "first", "second")


@dataclass(frozen=True)
class Result:
    first: str
    second: str
    asked: int
    """Pairs that raters are asked about."""
    judged: int
    """Those with a verdict."""
    unseen: int
    """Those that nobody has answered or skipped."""
    identical: int
    """Pairs of identical replies."""
    counted: bool
    """Whether those are in the shares, as ties."""
    shares: dict[str, Rate]
    sign_test: float
    """Two-sided and exact, first against second without the ties."""
    sides: tuple[int, int]
    """Answers that preferred the reply shown as 1, and as 2."""
    raters: dict[str, dict[str, int]]
    agreement: dict[str, Any]

    @property
    def preferred(self) -> Rate:
        """The second among the pairs that one of them won."""
        won = self.shares["second"].hits
        return Rate.of(won, won + self.shares["first"].hits)

    def as_dict(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "second": self.second,
            "asked": self.asked,
            "judged": self.judged,
            "unseen": self.unseen,
            "identical": {"pairs": self.identical, "counted_as_ties": self.counted},
            "shares": {verdict: rate.as_dict() for verdict, rate in self.shares.items()},
            "second_without_ties": self.preferred.as_dict(),
            "sign_test_p": self.sign_test,
            "chosen_side": {"1": self.sides[0], "2": self.sides[1]},
            "raters": self.raters,
            "agreement": self.agreement,
        }


def tally(ratings: Ratings, answers: Iterable[Answer]) -> Result:
    """Opens the blinds."""
    given = list(standing(answers).values())
    opened = {(a.rater, a.pair): _open(a, ratings.swapped) for a in given}
    by_pair: dict[str, list[str]] = {pair.id: [] for pair in ratings.pairs}
    raters: dict[str, dict[str, int]] = {}
    for (rater, pair), choice in opened.items():
        own = raters.setdefault(rater, dict.fromkeys((*VERDICTS, "skip"), 0))
        own[choice] += 1
        if choice != "skip":
            by_pair[pair].append(choice)
    verdicts = Counter(verdict_of(choices) for choices in by_pair.values() if choices)
    unseen = len(by_pair.keys() - {a.pair for a in given})
    judged, counted = verdicts.total(), unseen == 0
    if counted:
        verdicts["tie"] += len(ratings.identical)
    n = verdicts.total()
    return Result(
        first=ratings.first,
        second=ratings.second,
        asked=len(by_pair),
        judged=judged,
        unseen=unseen,
        identical=len(ratings.identical),
        counted=counted,
        shares={verdict: Rate.of(verdicts[verdict], n) for verdict in VERDICTS},
        # McNemar's exact test is the sign test on the pairs that one of the two wins.
        sign_test=mcnemar_exact(verdicts["first"], verdicts["second"]),
        sides=(sum(a.choice == "1" for a in given), sum(a.choice == "2" for a in given)),
        raters=dict(sorted(raters.items())),
        agreement=_agreement(opened),
    )


def verdict_of(choices: Sequence[str]) -> str:
    """The choice that most made; a tie where no choice leads."""
    (best, votes), *rest = Counter(choices).most_common()
    return "tie" if rest and rest[0][1] == votes else best


def _open(answer: Answer, swapped: set[str]) -> str:
    """first, second, tie or skip."""
    if answer.choice not in ("1", "2"):
        return answer.choice
    return "second" if (answer.choice == "2") != (answer.pair in swapped) else "first"


def _agreement(opened: dict[tuple[str, str], str]) -> dict[str, Any]:
    """Over pairs that at least two raters judged; nobody was asked about identical replies."""
    units: dict[str, dict[str, str]] = {}
    for (rater, pair), choice in opened.items():
        if choice != "skip":
            units.setdefault(pair, {})[rater] = choice
    shared = [unit for unit in units.values() if len(unit) > 1]
    equal, compared = agreeing([list(unit.values()) for unit in shared])
    names = sorted({rater for unit in shared for rater in unit})
    found: dict[str, Any] = {
        "raters": names,
        "pairs": len(shared),
        "same": equal,
        "compared": compared,
        "krippendorff_alpha": krippendorff_alpha([list(unit.values()) for unit in shared]),
    }
    if len(names) == 2:
        found["cohen_kappa"] = cohen_kappa([(unit[names[0]], unit[names[1]]) for unit in shared])
    return found
