"""Whether a hardened model still talks: harmless turns of a run are found, a broken model is heard and is not
kept."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.audit.backends.fixed_inputs import FoundCase, Replying
from backtalk.audit.findings import Played, played_by, read_found
from backtalk.cli import run
from backtalk.hardening.iterations import GIVEN, Attack
from backtalk.hardening.lists import Lists
from backtalk.hardening.subjects.asking import (
    DRAWS,
    HARMLESS,
    LEAST_KEPT,
    SEED,
    Aim,
    AskingFinder,
    Talk,
    Widening,
    broken,
    own_replies,
    read_talk,
    says,
    take_turns,
)
from backtalk.hits import parse_criterion
from backtalk.models.transformer.generation import SamplingConfig
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.report.hardening_record import Spoken
from backtalk.specs import ModelOptions, spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run
from backtalk.store.exchanges import Exchange, finding_of
from backtalk.training.lora import Adapter, LoraConfig, LoraUpdates
from backtalk.training.updates import UpdateConfig
from backtalk.types import Opening, Target, Thresholds, Turn
from tests.searches.ast.worlds import KIND, OPENINGS, RUDE, RudeScorer
from tests.training.methods import rule

pytestmark = pytest.mark.usefixtures("one_thread")


def rated_run(folder: Path, toxicities: Mapping[str, tuple[float, ...]], hit: str = "toxic-0.5") -> str:
    """A conversation for each case, whose replies were rated so."""
    facts = {"thresholds": {"T_out": float("nan"), "T_in": -2.0}, "template": "plain"}
    targets = [Opening(case, (f"opening {case}",)) for case in toxicities]
    spec = spec_values(AuditSpec(search="ast", hit=hit, scorer="toxicity-second"))
    with Run.create(folder, spec, facts, targets, "id", len(targets)) as created:
        findings = [
            finding_of(
                case,
                [f"opening {case}"],
                [Exchange(f" ask {n}", f" say {n}", one, 0.0, 0.0, 3.0, 2, 0.0) for n, one in enumerate(own)],
                1,
            )
            for case, own in toxicities.items()
        ]
        created.commit_block(0, findings, 1.0)
    return str(folder)


def test_harmless_turns_keep_or_measure_and_none_does_both(tmp_path: Path) -> None:
    rated = {f"c{i}": (0.1, 0.9, 0.2) if i < 10 else (0.1, 0.2, 0.3) for i in range(20)}
    name = rated_run(tmp_path / "run", rated)
    cases = read_found(name)
    assert len(cases) == 10
    lists = Lists(cases[:5], cases[5:7], cases[7:])
    talk = read_talk(name, lists)
    # Those that are trained on and every second one without a finding keep: two and three turns of each.
    kept = {dialogue[0].text for dialogue, _ in talk.kept}
    assert kept == {f"opening c{i}" for i in (0, 1, 2, 3, 4, 11, 13, 15, 17, 19)}
    assert len(talk.kept) == 5 * 2 + 5 * 3
    assert {reply for _, reply in talk.kept} == {" say 0", " say 1", " say 2"}
    assert not kept & {dialogue[0].text for dialogue in talk.asked}
    assert talk.asked[:2] == ((Turn("user", "opening c5"),), (Turn("user", "opening c6"),))
    assert sum(len(dialogue) == 1 for dialogue in talk.asked) == 10
    assert all(dialogue[-1].role == "user" for dialogue in talk.asked)
    # Too few of them would be learnt by heart.
    few = {case: own for case, own in rated.items() if int(case[1:]) in (*range(10), 10, 11)}
    seldom = rated_run(tmp_path / "few", few)
    assert LEAST_KEPT > 5 * 2 + 3
    assert read_talk(seldom, lists).kept == ()
    assert read_talk(seldom, lists).asked


def test_what_is_no_played_run_says_nothing_of_talk(tmp_path: Path) -> None:
    found = tmp_path / "found.jsonl"
    found.write_text(json.dumps({"turns": ["a", "b", "c"], "reply": "you fool"}) + "\n")
    assert played_by(str(found)) is None
    assert read_talk(str(found), Lists([], [], [])) == Talk()
    name = rated_run(tmp_path / "run", {"a": (0.9,)}, "toxic-0.5+likely")
    assert played_by("") is None
    assert played_by(name) == Played(
        "toxic-0.5", "toxicity-second", "toxicity", False, SamplingConfig(most=24)
    )


def facts(told: str) -> tuple[str | float, ...]:
    """The word for what is wrong, and the numbers."""
    (word,) = re.findall("unlikely|repetitive|toxic", told)
    return word, *map(float, re.findall(r"\d+(?:\.\d+)?", told))


def test_what_is_wrong_is_said() -> None:
    before = Spoken(40, 2.0, 1, 4)
    assert broken(Spoken(40, 2.2, 5, 8), before) == ""
    assert facts(broken(Spoken(40, 2.21, 1, 4), before)) == ("unlikely", 2.21, 2.00)
    assert broken(Spoken(4, 2.0, 2, 2), Spoken(4, 2.0, 0, 0)) == ""  # of so few turns two are chance
    assert "unlikely" in broken(Spoken(40, math.nan, 1, 4), before)
    assert facts(broken(Spoken(40, 1.0, 6, 4), before)) == ("repetitive", 6, 40, 1)
    assert facts(broken(Spoken(40, 2.0, 1, 9), before)) == ("toxic", 9, 40, 4)


@pytest.fixture
def model(planted: Path) -> TransformerModel:
    return load(str(planted / "tiny"), "cpu", ModelOptions(template="text", dtype="float32"))


def drawing(model: TransformerModel, sampling: SamplingConfig, seed: int) -> Replying:
    aim = Aim(parse_criterion("toxic-0.5"), Thresholds(-100.0), (), None, sampling)
    reply = aim.replying(model, seed)
    assert reply is not None
    return reply


def test_a_broken_model_is_heard(model: TransformerModel) -> None:
    dialogues = tuple((Turn("user", f"{opening} to the river"),) for opening in OPENINGS)
    adapter = Adapter(model.network, LoraConfig(rank=4))
    free = SamplingConfig(1.0, 1.0, 1.0, 2, 7)
    talk = Talk(asked=dialogues, played=Played("toxic-0.5", "toxicity-second", "toxicity", False, free))
    before = take_turns(model, adapter, talk, RudeScorer())
    # The adapter does nothing yet: what is said is as likely as what the model was trained to say.
    tokens = model.log_prob(dialogues, [KIND] * len(dialogues))
    usual = -sum(sum(row) / len(row) for row in tokens) / len(tokens)
    assert (before.n, before.toxic, before.circles) == (len(OPENINGS), 0, 0)
    assert before.log_ppl == pytest.approx(usual, abs=0.3)
    assert take_turns(model, adapter, talk, RudeScorer()) == before
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in adapter.weights.parameters():
            weight.normal_(0, 0.5)
    assert "unlikely" in broken(take_turns(model, adapter, talk, RudeScorer()), before)


def test_replies_are_drawn_as_they_are_played(model: TransformerModel) -> None:
    dialogues = [(Turn("user", f"{OPENINGS[0]} to the {place}"),) for place in ("garden", "river")]
    certain = SamplingConfig(0.0, 1.0, 1.0, 2, 7)
    greedy = [text.split()[:7] for text in model.reply(dialogues)]
    said = drawing(model, certain, 1)(dialogues)
    for words, text in zip(greedy, said, strict=True):
        assert text.split() == words[: len(text.split())]
    assert said[0].startswith(RUDE[:9])
    assert said[0][0] == " "  # blanks are kept: running text goes on from there
    free = SamplingConfig(2.0, 1.0, 1.0, 2, 7)
    assert drawing(model, free, 1)(dialogues) == drawing(model, free, 1)(dialogues)
    assert drawing(model, free, 1)(dialogues) != drawing(model, free, 2)(dialogues)


def test_drawn_words_have_to_fall_from_where_they_were(model: TransformerModel) -> None:
    adapter = Adapter(model.network, LoraConfig(rank=4))
    updates = LoraUpdates(
        adapter, model, UpdateConfig(method=rule("negative"), optimizer="adam", lr=0.01, lambda_pos=0.0)
    )
    aim = Aim(parse_criterion("toxic-0.5"), Thresholds(-100.0), (), RudeScorer(), SamplingConfig(most=7))
    dialogue = (Turn("user", f"{OPENINGS[0]} to the garden"),)
    given = Widening(model, 3, Attack(GIVEN, 1, 1, 1, ()), aim.thresholds, 1)
    finder = AskingFinder(model, updates, [FoundCase(Target("a", RUDE), (dialogue,))], aim, 0.5, given)
    (hit,) = finder.find([0], 0)
    assert "fool" in model.read(hit.target)
    with adapter.off():
        (before,) = updates.log_probs([hit])
    falls: list[float] = []
    while finder.still_hit([hit]) == [True] and len(falls) < 100:
        updates.negative(torch.tensor([hit.trigger]), torch.tensor([hit.target]))
        (now,) = updates.log_probs([hit])
        falls.append((sum(before) - sum(now)) / len(now))
    assert falls[-1] >= 0.5
    assert max(falls[:-1], default=0.0) < 0.5  # and no further: T_out is far below
    assert finder.find([0], 0) == finder.find([0], 0)


def test_own_replies_are_harmless_stored_and_of_the_same_conversations(
    model: TransformerModel, tmp_path: Path
) -> None:
    dialogues = [(Turn("user", f"{OPENINGS[0]} to the {place}"),) for place in ("garden", "river", "hill")]
    cases = [FoundCase(Target(str(i), RUDE), (one,)) for i, one in enumerate(dialogues)]
    free = SamplingConfig(2.0, 1.0, 1.0, 2, 7)
    aim = Aim(parse_criterion("toxic-0.5"), Thresholds(-100.0), (RUDE,), RudeScorer(), free)
    path = tmp_path / "preferred.jsonl"
    found = own_replies(model, cases, aim, path)
    assert 0 < len(found) <= DRAWS * len(dialogues)
    assert len(set(found)) == len(found)
    assert {dialogue for dialogue, _ in found} <= set(dialogues)
    assert max(RudeScorer().score([text for _, text in found])) < HARMLESS
    drawn = {text for number in range(DRAWS) for text in drawing(model, free, SEED + number)(dialogues)}
    assert {text for _, text in found} < drawn, "some of them are rude"
    assert not any(says(text, RUDE) for _, text in found)
    assert own_replies(model, [], aim, path) == found  # read again, blanks and all


@pytest.mark.parametrize("least", [1, 10_000])
def test_a_hardening_learns_its_own_harmless_replies(
    least: int, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    harden = play(planted, ["to the garden", "to the river"], 2)
    monkeypatch.setattr(
        Played, "sampling", SamplingConfig(2.0, 1.0, 1.0, 2, 7)
    )  # so free that it is not always rude
    monkeypatch.setattr("backtalk.hardening.subjects.asking.LEAST_KEPT", least)
    learnt: list[Any] = []
    real = LoraUpdates.__init__

    def spied(self: LoraUpdates, *given: Any) -> None:
        learnt.append(given[-1])
        real(self, *given)

    monkeypatch.setattr(LoraUpdates, "__init__", spied)
    assert run([*harden, "--out", "hard", "--lr", "0.002", "--kl", "3"]) == 0
    own, trained = (
        [json.loads(line) for line in Path("hard", name).read_text().splitlines()]
        for name in ("preferred.jsonl", "train.jsonl")
    )
    assert 0 < len(own) < 16
    assert all(row["turns"] in [one["turns"] for one in trained] for row in own)
    assert len(learnt[0]) == (len(own) if least == 1 else 0), "so few would be learnt by heart"
    assert told_by("hard")["lambda_pos"] == 2.0


def play(planted: Path, prompts: list[str], turns: int) -> list[str]:
    """A run of people's prompts in the folder before/; the command that hardens the model on it."""
    Path("prompts.txt").write_text("\n".join(prompts) + "\n")
    model = ["--model", f"hf/{planted / 'tiny'}"]
    flags = ["--search", "ast", "--template", "plain", "--openings", str(planted / "openings")]
    flags += ["--turns", str(turns), "--turn-tokens", "7", "--tune", "human", "--prompts", "prompts.txt"]
    assert run(["audit", *model, *flags, "--no-control", "--device", "cpu", "--out", "before"]) == 0
    return [
        "harden", *model, "--findings", "before", "--iterations", "1", "--measure", "8", "--no-audits",
        "--max-ppl-increase", "1000000000%", "--device", "cpu",
    ]  # fmt: skip


def told_by(folder: str) -> Any:
    return json.loads(Path(folder, "model", "card.json").read_text())["hardening"]


def test_an_iteration_that_breaks_the_model_is_not_kept(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    harden = play(planted, ["to the garden"], 1)
    assert run([*harden, "--out", "rough", "--lr", "0.1", "--kl", "0"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    told = told_by("rough")
    assert (told["hit"], told["iterations_kept"]) == ("toxic-0.5", 0)
    assert told["candidates"][1]["broken"]
    assert f": {told['candidates'][1]['broken']}." in shown


def test_harmless_turns_of_the_run_are_learnt(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("backtalk.hardening.subjects.asking.LEAST_KEPT", 1)
    harden = play(planted, ["to the garden", "to the river"], 2)
    assert run([*harden, "--out", "hard", "--lr", "0.002", "--kl", "3"]) == 0
    told = told_by("hard")
    assert told["talk"]["kept"] > 0
    assert told["lambda_pos"] == 2.0
    assert "harmless turns of the run" in told["pairs"]
    assert told["candidates"][1]["updates"] > 0
    assert told["candidates"][1]["talk"]["n"] == told["talk"]["asked"]
