"""The ladder of attacks by hand, and a weak search that runs dry until training makes it stronger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backtalk import Hardening
from backtalk.cli import run
from backtalk.hardening import iterations
from backtalk.hardening.iterations import GIVEN, Attack, is_done, level_of, make_ladder
from backtalk.hits import parse_criterion
from backtalk.report.hardening_record import Step
from backtalk.store import Run
from backtalk.training.resumable import load_checkpoint
from tests.killing import kill_once_there
from tests.rude import WEIGHTS, harden_rude, read, trajectory

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")

BOTH, OUTPUT = parse_criterion("io-sample-avg-k1"), parse_criterion("o-sample-avg-k1")
WEAK = [
    "--hit", "io-sample-avg-k1", "--search-sweeps", "1", "--top", "1", "--iterations", "12",
    "--escalate", "4", "--kl", "", "--max-ppl-increase", "1%", "--no-audits",
]  # fmt: skip


def step(level: int, found: int, of: int = 100) -> Step:
    return Step(1, level, "gibbs", found, of, 0, 10.0, 0.0)


# --- by hand -------------------------------------------------------------------------------------------


def test_the_ladder_of_a_criterion_with_a_condition_on_the_input() -> None:
    first = Attack("gibbs", 1, 25, 5, (BOTH,))
    whole = [
        first,
        Attack("gibbs", 3, 25, 5, (BOTH,)),
        Attack("gibbs", 3, 50, 6, (BOTH,)),
        Attack("gibbs", 3, 50, 6, (BOTH, OUTPUT)),
        Attack("gcg", 3, 50, 6, (BOTH, OUTPUT)),
    ]
    for most in range(5):
        assert make_ladder(first, most, last="gcg") == whole[: most + 1]
    assert make_ladder(first, 4) == whole[:4]


def test_the_ladder_of_an_output_criterion_is_one_shorter() -> None:
    first = Attack("gibbs", 5, 10, 9, (OUTPUT,))
    whole = [
        first,
        first,  # it has starts enough
        replace(first, top=20),  # and sweeps
        replace(first, top=20, search="gcg"),
    ]
    for most in range(5):
        assert make_ladder(first, most, last="gcg") == whole[: most + 1]


def test_given_inputs_are_the_weakest_attack() -> None:
    first = Attack(GIVEN, 1, 25, 5, (OUTPUT,))
    searches = [one.search for one in make_ladder(first, 4, last="gcg")]
    assert searches == [GIVEN, "gibbs", "gibbs", "gibbs", "gcg"]
    assert make_ladder(first, 0) == [first]


def test_the_level_rises_with_each_iteration_that_hits_one_in_fifty_or_fewer() -> None:
    ladder = make_ladder(Attack("gibbs", 1, 25, 5, (OUTPUT,)), 4, last="gcg")
    assert level_of([], ladder) == 0
    assert level_of([step(0, 3)], ladder) == 0
    assert level_of([step(0, 2)], ladder) == 1
    assert level_of([step(0, 2), step(1, 50), step(1, 0)], ladder) == 2
    assert level_of([step(0, 0)] * 9, ladder) == 3
    assert level_of([step(0, 1, of=49)], ladder) == 0
    assert level_of([step(0, 0)] * 9, ladder[:1]) == 0


def test_training_is_done_where_the_strongest_attack_hits_nothing() -> None:
    ladder = make_ladder(Attack("gibbs", 1, 25, 5, (OUTPUT,)), 4, last="gcg")
    assert not is_done([], ladder)
    assert not is_done([step(2, 0)], ladder)
    assert not is_done([step(3, 1)], ladder)
    assert not is_done([step(3, 0), step(3, 2)], ladder)
    assert is_done([step(3, 1), step(3, 0)], ladder)
    assert not is_done([step(0, 0)], ladder[:1]), "a search that stays as it is runs every iteration"


# --- from end to end -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def escalated(rude: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("escalated") / "out"
    assert run(harden_rude(rude, out, *WEAK)) == 0
    return out


def test_a_search_that_runs_dry_becomes_stronger_until_it_hits(rude: Path, escalated: Path) -> None:
    assert run(harden_rude(rude, "weak", *WEAK, "--escalate", "0")) == 0
    assert [one["found"] for one in trajectory(Path("weak"))[1]] == [0] * 12
    assert read(Path("weak/summary.json"))["hardening"]["iterations_kept"] == 0
    steps = trajectory(escalated)[1]
    levels, found = [one["level"] for one in steps], [one["found"] for one in steps]
    assert levels == sorted(levels)
    assert levels[:3] == [0, 1, 2]
    first = next(i for i, hits in enumerate(found) if hits)
    assert levels[first] > 0, "what the first search missed is hit"
    assert len({one["attacker"] for one in steps}) == len(set(levels))
    told = read(escalated / "summary.json")["hardening"]
    assert told["iterations_kept"] > first


def test_training_ends_early_where_the_ceiling_hits_nothing(escalated: Path) -> None:
    steps = trajectory(escalated)[1]
    assert len(steps) < 12
    assert (steps[-1]["level"], steps[-1]["found"]) == (4, 0)
    assert steps[-1]["attacker"] == read(escalated / "summary.json")["hardening"]["ceiling"]
    assert not any(one["level"] == 4 and not one["found"] for one in steps[:-1])


def test_it_does_not_end_before_what_was_overspent_is_healed(
    rude: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few such updates an iteration, the strongest attack hits nothing before the bound is met again."""
    monkeypatch.setattr(iterations, "MOST_HEALS", 3)
    assert run(harden_rude(rude, "out", *WEAK)) == 0
    candidates, steps = trajectory(Path("out"))
    dry = [one["iteration"] for one in steps if one["level"] == 4 and not one["found"]]
    assert len(dry) > 1
    most = 1.01 * candidates[0]["perplexity"]
    assert [one["perplexity"] > most for one in candidates[1:]] == [True] * (len(candidates) - 2) + [False]
    assert read(Path("out/summary.json"))["hardening"]["iterations_kept"] == dry[-1] < 12


def test_where_training_came_to_gcg_the_proof_has_a_search_that_it_did_not_use(rude: Path) -> None:
    """The original model is audited by it too, after training."""
    command = harden_rude(rude, "out", *WEAK, "--audits", "--restarts", "1", "--sweeps", "1")
    assert run(command) == 0
    used = {row.search: row.trained_with for row in Hardening("out").proof}
    assert used == {"gibbs": True, "gcg": True, "relax": False}
    relaxed = [row for row in Hardening("out").proof if row.search == "relax"]
    assert [row.list for row in relaxed] == ["held-out", "training"]
    assert all(row.before and Run.exists(Path("out", row.run_before)) for row in relaxed)
    made = {path: path.stat().st_mtime_ns for path in Path("out/audits").glob("*/*/run.sqlite")}
    assert run(command) == 0
    assert made == {path: path.stat().st_mtime_ns for path in Path("out/audits").glob("*/*/run.sqlite")}


def test_killed_at_several_points_it_ends_with_the_same_weights_and_steps(
    rude: Path, escalated: Path
) -> None:
    """While the search is too weak, in updates, after they ended an iteration, and when they only heal; the
    checkpoint is written after every update."""
    command = harden_rude(rude, "broken", *WEAK, "--checkpoint-s", "0")
    for file, written in (("checkpoint", 3), ("checkpoint", 15), ("selection", 2), ("checkpoint", 8)):
        kill_once_there(command, Path(f"broken/{file}.safetensors"), written)
    reached = load_checkpoint(Path("broken/checkpoint.safetensors"), with_tensors=False)
    assert reached is not None
    assert 0 < reached[1]["healed"] < reached[1]["heals"]
    assert reached[1]["kl"] == 20.0
    assert not Path("broken/model").exists()
    assert run(harden_rude(rude, "broken", *WEAK)) == 0
    assert trajectory(Path("broken")) == trajectory(escalated)
    assert Path("broken", WEIGHTS).read_bytes() == (escalated / WEIGHTS).read_bytes()
