"""The findings of Liu et al. 2019, and the question that the paper leaves open, as a checklist.

holds, fails: the whole interval is on that side; no difference: it holds 0. Differences and gains are paired
by target. The paper sets REINFORCE beside pre-training without counting queries; at equal queries it has to
beat the generator that it started from, and what was merely gathered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backtalk.stats import Rate
from reproduction.bootstrap import difference_of, gain_of
from reproduction.cells import percent, table
from reproduction.egregious.findings import Verdict
from reproduction.reverse.paper import GAIN, GROUPS, TABLE_1
from reproduction.reverse.results import REAL_INPUT, Records, reached
from reproduction.reverse.sizes import Size

NEAR = 0.7
"""Similarity from which a target counts as reached."""
BELOW = (
    "*holds* and *fails*: the whole 95% interval is on that side; *no difference*: it holds 0. "
    "Differences and gains are paired by target."
)


def checklist(records: Records, corpora: Sequence[str], size: Size) -> list[str]:
    verdicts = [verdict for corpus in corpora for verdict in check_findings(records, corpus, size)]
    if not verdicts:
        return ["Not run.", ""]
    return [*table(["finding", "where", "paper", "ours", "verdict"], verdicts, words=5), BELOW, ""]


def check_findings(records: Records, corpus: str, size: Size) -> Iterator[Verdict]:
    widest = f"rl-beam-{size.beams[-1]}"
    yield from _reinforced(records, corpus)
    yield from _gains(records, corpus, widest)
    yield from _lists(records, corpus, widest)
    yield from _equal(records, corpus)


def _reinforced(records: Records, corpus: str) -> Iterator[Verdict]:
    names = ("pretrained-greedy", "rl-greedy")
    for place, group in enumerate(GROUPS):
        before, after = (reached(records, corpus, name, "real", group).get("near", []) for name in names)
        if before and after:
            said = TABLE_1[names[1]][place] - TABLE_1[names[0]][place]
            found = difference_of(before, after)
            where = f"{corpus}, Real, {group} words, greedy"
            yield Verdict(
                "REINFORCE brings replies nearer", where, f"+{said:.3f}", _signed(found), _side(found)
            )


def _gains(records: Records, corpus: str, widest: str) -> Iterator[Verdict]:
    for said, group in zip(GAIN, GROUPS, strict=True):
        first, best = (
            reached(records, corpus, name, "real", group).get("near", []) for name in (REAL_INPUT, widest)
        )
        found = gain_of(first, best) if first and best else None
        if found:
            ours = "{mean:+.0f}% [{low:+.0f}, {high:+.0f}]".format(**found)
            where = f"{corpus}, Real, {group} words"
            yield Verdict(f"{widest} is nearer than the real input", where, f"+{said:g}%", ours, _side(found))


def _lists(records: Records, corpus: str, widest: str) -> Iterator[Verdict]:
    """The paper has a number for Generated targets of four words and more only, by figure 2."""
    own, people = (_reached_share(records, corpus, widest, name) for name in ("generated", "real"))
    if own.n and people.n:
        ours = f"{percent(own.as_dict())} to {percent(people.as_dict())}"
        apart = own.low > people.high or own.high < people.low
        verdict = ("holds" if own.rate > people.rate else "fails") if apart else "no difference"
        title = f"what the model says is reached more often than what people say ({NEAR:g})"
        yield Verdict(title, f"{corpus}, 4-10 words, {widest}", "about 80% to less", ours, verdict)


def _reached_share(records: Records, corpus: str, decoder: str, name: str) -> Rate:
    near = [v for g in GROUPS[1:] for v in reached(records, corpus, decoder, name, g).get("near", [])]
    return Rate.of(sum(value >= NEAR for value in near), len(near))


def _equal(records: Records, corpus: str) -> Iterator[Verdict]:
    found = records.get(f"equal-{corpus}", {}).get("result")
    if not found:
        return
    means = found["mean"]
    own = max(found["rl_less"], key=lambda how: means[f"rl-{how}"]["mean"] or 0.0)
    for name in means:
        if not name.startswith("rl-"):
            less = found["rl_less"][own][name]
            title = f"at equal queries REINFORCE beats {name}"
            yield Verdict(title, f"{corpus}, rl-{own}", "not asked", _signed(less), _side(less))


def _side(found: Mapping[str, Any]) -> str:
    if found["low"] > 0:
        return "holds"
    return "fails" if found["high"] < 0 else "no difference"


def _signed(found: Mapping[str, Any]) -> str:
    return "{mean:+.3f} [{low:+.3f}, {high:+.3f}]".format(**found)
