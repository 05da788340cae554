"""The attacker grows while a Hugging Face model is trained, and the KL weight adapts; killed, both go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.cli import run
from tests.hardening.commands import command, read, trained
from tests.killing import kill_once_there

pytestmark = pytest.mark.usefixtures("one_thread")


def words(place: Path, out: Path, *more: str) -> list[str]:
    """Given inputs stop working after an iteration or two; the KL weight is not given, so it adapts."""
    own = command(
        place, str(out), "--escalate", "2", "--iterations", "4", "--search-sweeps", "2", "--no-audits", *more
    )
    kl = own.index("--kl")
    return own[:kl] + own[kl + 2 :]


@pytest.fixture(scope="module")
def escalated(place: Path, planted: Path) -> Path:
    assert run(words(place, place / "escalated")) == 0
    return place / "escalated"


def test_steps_rise_from_given_inputs_to_a_search_that_finds_hits(escalated: Path) -> None:
    told = read(escalated / "summary.json")["hardening"]
    steps = told["steps"]
    assert [told["search"], told["ceiling"]] == ["given inputs", "gibbs o, 3 starts, G=25, 2 sweeps"]
    assert (steps[0]["attacker"], steps[0]["found"], steps[0]["of"]) == ("given inputs", 20, 20)
    levels = [step["level"] for step in steps]
    assert levels == sorted(levels)
    given = [step for step in steps if step["level"] == 0]
    assert given[-1]["found"] == 0  # that is why it rose
    searched = [step for step in steps if step["level"] > 0]
    assert all(step["attacker"].startswith("gibbs o, ") for step in searched)
    assert searched[0]["found"] > 0  # what given inputs no longer draw out, a search does
    assert searched[0]["updates"] > given[-1]["updates"]


def test_the_kl_weight_follows_what_perplexity_is_allowed(escalated: Path) -> None:
    candidates, steps = trained(escalated)
    first = candidates[0]["perplexity"]
    weights = {step["iteration"]: step["kl"] for step in steps}
    assert len(set(weights.values())) > 1
    for one in candidates[1:]:
        if (after := weights.get(one["iterations"] + 1)) is not None:
            under = one["perplexity"] / first - 1 < 0.9 * 0.1
            assert (after < one["kl"]) == under, one
    kept = read(escalated / "summary.json")["hardening"]
    assert kept["perplexity_after"] <= 1.1 * first


def test_killed_it_ends_with_the_same_adapter_candidates_and_steps(
    place: Path, escalated: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    own = words(place, broken, "--checkpoint-s", "0")
    for name, written in (("checkpoint.safetensors", 5), ("selection.safetensors", 2), ("model", 1)):
        kill_once_there(own, broken / name, written)
    assert not (broken / "summary.json").exists()
    assert run(own) == 0
    name = "model/adapter_model.safetensors"
    assert (broken / name).read_bytes() == (escalated / name).read_bytes()
    assert trained(broken) == trained(escalated)
