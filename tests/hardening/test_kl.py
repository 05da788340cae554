"""The KL weight follows what of the allowed perplexity is spent: by hand, and from end to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.hardening.iterations import HEALS, LEAST, MOST, MOST_HEALS, adapted_kl, needed_heals
from backtalk.report.hardening_record import Candidate
from tests.rude import harden_rude, read, trajectory

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


def after(*rises: float) -> Sequence[Candidate]:
    """The original model, and candidates whose perplexity has risen by so much."""
    rest = (Candidate(i, 0, 10, 50.0 * (1 + rise), 0) for i, rise in enumerate(rises, 1))
    return [Candidate(0, 5, 10, 50.0, 40), *rest]


# --- by hand -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rises", "weight"),
    [
        ([], 10.0),
        ([0.09], 10.0),  # nine tenths of the bound are aimed at
        ([0.06], 10.0 * 2 / 3),
        ([0.135], 15.0),
        ([0.0], 5.0),  # at most halved
        ([-0.2], 5.0),
        ([0.9], 20.0),  # and at most doubled
        ([0.9, 0.0, 0.06], 10.0 * 2 / 3),
    ],
)
def test_it_falls_while_perplexity_is_unspent_and_rises_when_overspent(
    rises: list[float], weight: float
) -> None:
    candidates = after(*rises)
    assert adapted_kl(10.0, 0.1, candidates) == pytest.approx(weight)
    assert adapted_kl(10.0, 0.1, candidates) == adapted_kl(10.0, 0.1, list(candidates)), "of these alone"


def test_it_stays_within_its_bounds() -> None:
    assert adapted_kl(10.0, 0.1, after(*[0.0] * 50)) == LEAST
    assert adapted_kl(10.0, 0.1, after(*[9.0] * 50)) == MOST
    assert adapted_kl(10.0, 0.0, after(0.5)) == 20.0, "nothing is allowed: it rises, and divides by no zero"


@pytest.mark.parametrize(
    ("rises", "heals"),
    [
        ([], 0),
        ([0.05], 0),
        ([0.089], 0),
        ([0.135], HEALS // 2),
        ([0.18], HEALS),
        ([9.0], MOST_HEALS),
        ([9.0, 0.01], 0),  # only the last one counts
    ],
)
def test_updates_that_heal_are_as_many_as_are_overspent(rises: list[float], heals: int) -> None:
    assert needed_heals(0.1, after(*rises)) == heals


# --- from end to end -----------------------------------------------------------------------------------


def test_it_adapts_where_no_weight_is_given_and_heals_what_is_over_the_bound(rude: Path) -> None:
    small = ["--iterations", "4", "--max-ppl-increase", "1%", "--no-audits"]
    assert run(harden_rude(rude, "adapts", *small, "--kl", "")) == 0
    candidates, steps = trajectory(Path("adapts"))
    most = 1.01 * candidates[0]["perplexity"]
    assert candidates[1]["perplexity"] > most
    assert [one["kl"] for one in steps[:2]] == [10.0, 20.0]
    assert steps[2]["kl"] < 20.0
    healed = next(one for one in candidates if one["iterations"] == 2)
    assert steps[1]["found"] == 0
    assert steps[1]["updates"] > steps[0]["updates"], "without a hit, by updates that only heal"
    assert healed["perplexity"] <= most
    told = read(Path("adapts/summary.json"))["hardening"]
    assert told["iterations_kept"] == 2
    assert run(harden_rude(rude, "fixed", *small, "--kl", "10")) == 0
    candidates, steps = trajectory(Path("fixed"))
    assert {one["kl"] for one in steps} == {10.0}
    assert {one["updates"] for one in steps} == {candidates[1]["updates"]}
    assert read(Path("fixed/summary.json"))["hardening"]["iterations_kept"] == 0


def test_what_is_unspent_lowers_it(rude: Path) -> None:
    assert run(harden_rude(rude, "out", "--iterations", "3", "--no-audits", "--kl", "")) == 0
    weights = [one["kl"] for one in trajectory(Path("out"))[1]]
    assert weights == [10.0, 5.0, 5.0], "an iteration without updates changes nothing"
