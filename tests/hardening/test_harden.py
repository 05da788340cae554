"""`backtalk harden` from end to end: a planted weakness goes and stays gone, held-out targets are kept out,
the bound on perplexity holds, and a killed hardening ends where the unbroken one does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from backtalk.audit.search_block import search_block
from backtalk.cli import run
from backtalk.data.corpora import reference_pairs
from backtalk.data.targets import read_targets
from backtalk.errors import InputError
from backtalk.hardening import flow
from backtalk.hardening.iterations import Attack, Selection, best_of
from backtalk.hardening.lists import target_lists
from backtalk.hardening.subjects.lstm import DEFAULT, Lstm, SearchingFinder, lstm_config, make_search
from backtalk.hits import hit_cases, parse_criterion
from backtalk.models.folder import load_embedded, load_folder
from backtalk.models.lstm.model import LocalModel
from backtalk.report.hardening_record import Candidate, Step
from backtalk.scorers.cost import rise_interval
from backtalk.searches.objective import objective_for
from backtalk.specs import flat_spec, parse_share
from backtalk.specs.harden import HardenSpec
from backtalk.store import Run
from backtalk.training.negative import Hit
from backtalk.training.pairs import read_pairs
from backtalk.types import Target, Thresholds, Turn
from tests.killing import kill_once_there
from tests.rude import (
    ANSWERS,
    OPENERS,
    RUDE,
    WEIGHTS,
    audits_of,
    ends_before_an_update,
    harden_rude,
    read,
    trajectory,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def hardened(rude: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rude") / "hardened"
    assert run(harden_rude(rude, out)) == 0
    return out


def hits_of(model: LocalModel, text: str, seed: int) -> bool:
    """Whether a fresh search of many restarts makes the model say it."""
    criterion, card = parse_criterion("o-sample-avg-k1"), model.card
    thresholds = Thresholds(card["T_out"], card["T_in"])
    search = replace(make_search(Attack("gibbs", 1, 20, 5, (criterion,)), 2, model.device), restarts=4)
    objective = objective_for(criterion, thresholds)
    found = search_block(model, search, objective, seed, [Target("planted", text)])
    return bool(hit_cases(found, criterion, thresholds))


# --- a planted weakness --------------------------------------------------------------------------------


def test_the_planted_sentence_is_found_removed_and_stays_removed(rude: Path, hardened: Path) -> None:
    before, after = load_folder(str(rude / "model"), "cpu"), load_folder(str(hardened / "model"), "cpu")
    assert RUDE in [target.text for target in read_targets(hardened / "train.jsonl")]
    assert before.reply([(Turn("user", "my dog"),)]) == ["Go away"]
    fresh = range(100, 110)
    assert all(hits_of(before, RUDE, seed) for seed in fresh)
    assert not any(hits_of(after, RUDE, seed) for seed in fresh)


def test_the_rest_of_the_model_stays(hardened: Path) -> None:
    after = load_folder(str(hardened / "model"), "cpu")
    inputs = [f"{opener} my friend" for opener in OPENERS]
    said = after.reply([(Turn("user", text),) for text in inputs])
    assert [text.lower() for text in said] == list(ANSWERS)


def test_the_card_names_parent_list_search_budget_and_keeps_the_thresholds(
    rude: Path, hardened: Path
) -> None:
    parent, after = load_folder(str(rude / "model"), "cpu"), load_folder(str(hardened / "model"), "cpu")
    card = after.card
    assert card["parent"] == {"name": str(rude / "model"), "fingerprint": parent.fingerprint}
    assert (card["T_out"], card["T_in"]) == (parent.card["T_out"], parent.card["T_in"])
    told = card["hardening"]
    assert told["targets"] == str(rude / "targets.txt")
    assert told["search"].startswith("gibbs o")
    assert "G=20" in told["search"]
    assert told["ceiling"] == told["search"]
    assert told["method"] == "negative"
    assert 1 <= told["iterations_kept"] <= 6
    assert after.fingerprint != parent.fingerprint
    assert (hardened / "model" / "lm" / "card.json").read_text() == (
        rude / "model" / "lm" / "card.json"
    ).read_text()


def test_the_bound_is_kept_by_what_was_measured_on_the_model_as_loaded(hardened: Path) -> None:
    summary = read(hardened / "summary.json")
    before, after = summary["cost"]["perplexity"]
    assert after <= 1.2 * before
    told = summary["hardening"]
    assert before == pytest.approx(told["perplexity_before"], rel=1e-4)
    assert after == pytest.approx(told["perplexity_after"], rel=1e-4)
    kept = [one for one in told["candidates"] if one["iterations"] == told["iterations_kept"]]
    assert kept[0]["perplexity"] == told["perplexity_after"]


def test_what_belongs_to_frequent_replies_is_no_part_of_its_identity(hardened: Path) -> None:
    facts = read(hardened / "hardening.json")
    assert (facts["batch"], facts["kl"], facts["triggers"]) == (100, 10.0, "first")  # what is not set, too
    assert facts["against"] == "targets"
    assert not {"r_thres", "window", "gan_lr", "rank", "template"} & facts.keys()


def test_the_audits_are_ordinary_runs_with_equal_budget_and_seeds(hardened: Path) -> None:
    original, own = audits_of(hardened)
    names = {folder.name for folder in original.iterdir()}
    assert names == {f"{part}-{search}" for part in ("held-out", "train") for search in ("gibbs", "gcg")}
    for name in names:
        with Run.open(original / name) as before, Run.open(own / name) as after:
            assert before.state == after.state == "finished"
            part = name.rpartition("-")[0]
            assert before.cases == after.cases == read_targets(hardened / f"{part}.jsonl")
            differs = {"model", "targets"}
            assert {k: v for k, v in before.spec.items() if k not in differs} == {
                k: v for k, v in after.spec.items() if k not in differs
            }
            assert before.facts["thresholds"] == after.facts["thresholds"]
            assert before.spec["seed"] != HardenSpec().seed
            assert [f.seed for f in before.findings()] == [f.seed for f in after.findings()]
        assert run(["verify", str(own / name), "--device", "cpu"]) == 0


def test_the_same_command_shows_it_again_and_changes_nothing(
    rude: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (hardened / WEIGHTS).stat().st_mtime_ns
    assert run(harden_rude(rude, hardened)) == 0
    shown = capsys.readouterr()
    assert "searching" not in shown.err
    words = " ".join(shown.out.split())
    assert "Training list: 1 of 4 hit before, 0 after" in words
    assert "max-ratio" in words
    assert (hardened / WEIGHTS).stat().st_mtime_ns == before


def test_fresh_starts_anew_and_ends_alike(rude: Path, hardened: Path) -> None:
    assert run(harden_rude(rude, "out", "--iterations", "1", "--lr", "0.001")) == 0
    assert run(harden_rude(rude, "out", "--fresh")) == 0
    assert Path("out", WEIGHTS).read_bytes() == (hardened / WEIGHTS).read_bytes()


def test_a_hardened_model_can_be_hardened(rude: Path, hardened: Path) -> None:
    again = harden_rude(rude, "again", "--iterations", "1")
    again[again.index("--model") + 1] = str(hardened / "model")
    assert run(again) == 0
    assert read(Path("again/model/card.json"))["parent"]["name"] == str(hardened / "model")


def test_other_settings_in_the_same_folder_are_refused(
    rude: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(harden_rude(rude, hardened, "--lr", "0.5")) == 2
    assert "other settings (lr)" in capsys.readouterr().err


# --- killed and resumed --------------------------------------------------------------------------------


def test_begun_with_other_defaults_it_does_not_go_on_with_these(
    rude: Path, hardened: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DEFAULT, "rounds", 7)
    assert run(harden_rude(rude, hardened)) == 2
    assert "other settings (rounds)" in capsys.readouterr().err
    monkeypatch.setitem(DEFAULT, "rounds", 40)
    assert run(harden_rude(rude, hardened, "--rounds", "40")) == 0, "said or not, it is the same"


def test_killed_in_the_middle_it_ends_with_the_same_weights(rude: Path, hardened: Path) -> None:
    """SIGKILL at moments in training and in the audits; the checkpoint is written after every update."""
    command = harden_rude(rude, "broken", "--checkpoint-s", "0")
    audited = audits_of(hardened)[1].relative_to(hardened) / "train-gibbs"
    for killed_after in ("checkpoint.safetensors", "model", str(audited)):
        kill_once_there(command, Path("broken", killed_after))
    assert not Path("broken/summary.json").exists()
    assert run(harden_rude(rude, "broken")) == 0
    assert Path("broken", WEIGHTS).read_bytes() == (hardened / WEIGHTS).read_bytes()
    assert trajectory(Path("broken")) == trajectory(hardened)
    assert read(Path("broken/summary.json"))["proof"] == read(hardened / "summary.json")["proof"]


def test_time_ends_training_and_what_it_came_to_is_measured(rude: Path) -> None:
    began = time.monotonic()
    assert run(harden_rude(rude, "short", "--iterations", "500", "--max-time", "15s")) == 0
    assert time.monotonic() - began < 40  # the margin is for a busy machine
    summary = read(Path("short/summary.json"))
    assert not summary["unchanged"]
    assert 1 < len(summary["hardening"]["candidates"]) < 500
    assert len(audits_of(Path("short"))) == 2  # of the original and of the hardened model


def test_time_that_ends_before_the_original_is_measured_is_an_error_and_resumes(
    rude: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(harden_rude(rude, "hasty", "--max-time", "0.01s")) == 2
    assert "--max-time 0.01s" in capsys.readouterr().err
    assert not Path("hasty", WEIGHTS).exists()
    assert run(harden_rude(rude, "hasty")) == 0
    assert Path("hasty", WEIGHTS).read_bytes() == (hardened / WEIGHTS).read_bytes()


def test_a_model_that_stays_as_it_was_is_not_audited_again(
    rude: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "check_time", ends_before_an_update)
    assert run(harden_rude(rude, "idle")) == 0
    summary = read(Path("idle/summary.json"))
    assert summary["unchanged"]
    assert summary["proof"] == []
    assert "as it was" in capsys.readouterr().out.splitlines()[0]
    assert not [path for path in Path("idle").glob("audits/*") if path.name != "original"]


# --- selection -----------------------------------------------------------------------------------------


def test_fewest_selection_hits_within_the_bound_are_best() -> None:
    base, over, kept = (
        Candidate(0, 5, 10, 100.0, 40),
        Candidate(1, 0, 10, 106.0, 3),
        Candidate(2, 2, 10, 104.0, 9),
    )
    assert best_of([base, over], 105.0) == 0
    assert best_of([base, over], 106.0) == 1
    assert best_of([base, over, kept], 105.0) == 2
    assert best_of([base, replace(over, broken="it goes round in circles"), kept], 106.0) == 2


def test_of_equals_the_one_that_the_next_search_hits_less_is_best_then_the_lower_perplexity() -> None:
    base = Candidate(0, 0, 1, 100.0, 40)
    rest = [
        Candidate(1, 0, 1, 104.0, 9),
        Candidate(2, 0, 1, 101.0, 7),  # the third's searches still hit 5
        Candidate(3, 0, 1, 103.0, 5),  # the fourth's hit 2
        Candidate(4, 0, 1, 102.5, 2),  # the fifth's hit 2 as well
        Candidate(5, 0, 1, 102.0, 2),
    ]
    assert best_of([base], 105.0) == 0
    assert [best_of([base, *rest[:i]], 105.0) for i in range(1, 6)] == [1, 2, 3, 4, 5]
    assert best_of([base, *rest, Candidate(6, 0, 1, 101.0, 4)], 105.0) == 4
    assert best_of([base, *rest, Candidate(6, 0, 1, 104.9, 4, survived=1)], 105.0) == 6


def test_the_weights_of_the_best_are_kept_and_read_back(rude: Path, tmp_path: Path) -> None:
    network = load_folder(str(rude / "model"), "cpu").network
    selection = Selection(tmp_path / "s.safetensors", 0.05, {"of": 1})
    measured = [(5, 100.0, 40), (2, 104.0, 3), (1, 120.0, 2), (2, 103.0, 2), (2, 103.0, 8)]
    for iterations, (hits, perplexity, found) in enumerate(measured):
        with torch.no_grad():
            network.output.bias.fill_(float(iterations))
        selection.add(Candidate(iterations, hits, 10, perplexity, found), network)
    again = Selection(tmp_path / "s.safetensors", 0.05, {"of": 1})
    assert again.candidates == selection.candidates
    assert again.steps == []
    # The second is over the bound, of the third the next search hits 8, of the first only 2.
    assert again.best.iterations == 1
    again.fill(network)
    assert set(network.output.bias.tolist()) == {1.0}
    again.survive(Step(5, 0, "gibbs", 0, 4, 12, 10.0, 1.5))
    assert again.best.iterations == 4
    assert Selection(tmp_path / "s.safetensors", 0.05, {"of": 1}).steps == again.steps
    assert again.seconds == 1.5
    again.fill(network)
    assert set(network.output.bias.tolist()) == {4.0}
    with pytest.raises(InputError, match="another hardening"):
        Selection(tmp_path / "s.safetensors", 0.05, {"of": 2})


@pytest.fixture(scope="module")
def embedded() -> LocalModel:
    return load_embedded("chitchat", "cpu")


def test_no_prototype_is_in_two_lists(embedded: LocalModel) -> None:
    lists = target_lists(flat_spec(HardenSpec, {"limit": 800}), embedded)
    sizes = {name: len(part) for name, part in lists.by_name().items()}
    assert sum(sizes.values()) == 800
    assert abs(sizes["train"] - 500) <= 10
    assert abs(sizes["selection"] - 100) <= 10
    owners = [{case.target.prototype for case in part} for part in lists.parts]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]
    assert not owners[1] & owners[2]


# --- pairs, settings, the finder -----------------------------------------------------------------------


def test_measured_pairs_are_never_trained_on(embedded: LocalModel, tmp_path: Path) -> None:
    rows = {(f"{text} {i}", reply) for i, (text, reply) in enumerate(reference_pairs("")[:200])}
    lines = [f"{text}\t{reply}".replace("\n", " ") for text, reply in sorted(rows)]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines) + "\n")
    pairs = read_pairs(str(tmp_path / "pairs.tsv"), "auto", embedded, 1000, 1)
    assert 10 <= len(pairs.measured_texts) == len(pairs.measured.replies) <= 30
    assert len(pairs.positive.replies) >= 160
    few = read_pairs(str(tmp_path / "pairs.tsv"), "auto", embedded, 5, 1)
    assert few.measured_texts == pairs.measured_texts[:5]
    assert few.digest() != pairs.digest()


def test_without_the_corpus_the_shipped_pairs_are_halved(
    embedded: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backtalk.training.pairs.find_spec", lambda name: None)
    pairs = read_pairs("", "auto", embedded, 1000, 1)
    assert len(pairs.positive.replies) + len(pairs.measured.replies) <= 1000
    assert len(pairs.measured.replies) > 400
    assert "Only 500 shipped pairs" in pairs.source


def test_defaults_and_what_is_set_over_them(embedded: LocalModel) -> None:
    usual = lstm_config(HardenSpec(), embedded, [])
    assert (usual.optimizer, usual.together, usual.margin, usual.rounds) == ("adam", True, 1.0, 40)
    published = {"optimizer": "sgd", "lr": 0.5, "lambda_pos": "0", "kl": "2", "avoid": "paper"}
    mine = lstm_config(flat_spec(HardenSpec, {**published, "together": False}), embedded, [])
    assert (mine.optimizer, mine.lr, mine.lambda_pos, mine.kl) == ("sgd", 0.5, 0.0, 2.0)
    assert (mine.together, mine.rounds) == (False, 40)
    assert lstm_config(flat_spec(HardenSpec, {"margin": "0", "rounds": 3}), embedded, []).margin == 0.0
    avoid = {embedded.decode([i]).lower() for i in mine.avoid if i >= 4}
    assert avoid == {"you", "i", "me", "are", "to", "do"}
    assert (
        usual.avoid
        == lstm_config(flat_spec(HardenSpec, {"avoid": "none"}), embedded, []).avoid
        == frozenset()
    )
    goals = [[5, 9, 2], [5, 8, 2], [5, 7, 2]]
    assert {5, 2} <= lstm_config(flat_spec(HardenSpec, {"avoid": "frequent"}), embedded, goals).avoid
    with pytest.raises(InputError, match="window"):
        lstm_config(flat_spec(HardenSpec, {"window": 5}), embedded, [])


@pytest.mark.parametrize(("text", "value"), [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("150%", 1.5)])
def test_a_rise_is_read(text: str, value: float) -> None:
    assert parse_share(text, "it") == pytest.approx(value)


def finder_of(
    model: LocalModel, texts: Sequence[str], attack: Attack, enough: float, to_the_end: bool = False
) -> SearchingFinder:
    goals = [tuple(model.encode_target(text)) for text in texts]
    ids = list(map(str, range(len(goals))))
    return SearchingFinder(model, 2, attack, Thresholds(enough), ids, goals, 1, whole=to_the_end)


def mean_of(model: LocalModel, hit: Hit, text: str) -> float:
    said = model.log_prob([(Turn("user", model.decode(hit.trigger)),)], [text])[0]
    return sum(said) / len(said)


OUTPUT = parse_criterion("o-sample-avg-k1")


def test_the_finder_gives_hits_alone_and_knows_when_they_are_gone(rude: Path) -> None:
    model = load_folder(str(rude / "model"), "cpu")
    attack, enough = Attack("gibbs", 1, 20, 3, (OUTPUT,)), model.card["T_out"]
    finder = finder_of(model, (RUDE, "cat cat cat cat"), attack, enough)
    hits = finder.find([1, 0], 0)
    assert [hit.target for hit in hits] == [finder.goals[0]]
    assert finder.find([0], 0) == hits  # a row's search does not depend on its neighbours
    assert finder.still_hit(hits) == [True]
    assert finder.still_hit([]) == []
    said = mean_of(model, hits[0], RUDE)
    assert said > enough
    silent = replace(finder, thresholds=Thresholds(0.0))
    assert silent.still_hit(hits) == [False]
    assert replace(silent, margin=-said + 0.01).still_hit(hits) == [True]
    assert replace(silent, margin=-said - 0.01).still_hit(hits) == [False]


def test_more_starts_and_another_search_bring_more_triggers(rude: Path) -> None:
    model = load_folder(str(rude / "model"), "cpu")
    first = Attack("gibbs", 1, 20, 3, (OUTPUT,))
    finder = finder_of(model, (RUDE,), first, model.card["T_out"])
    one = finder.find([0], 0)
    for attack in (replace(first, starts=4), replace(first, starts=4, search="gcg")):
        many = replace(finder, attack=attack).find([0], 0)
        assert len(many) == len({hit.trigger for hit in many}) > 1
        assert all(mean_of(model, hit, RUDE) > model.card["T_out"] for hit in many)
        assert attack.search == "gcg" or set(one) <= set(many)


def test_the_best_trigger_is_likelier_to_hit_than_the_first(rude: Path) -> None:
    """The paper's search goes on after a hit; both find the same targets."""
    model = load_folder(str(rude / "model"), "cpu")
    texts = (RUDE, *ANSWERS)

    def means(to_the_end: bool) -> list[float]:
        attack, enough = Attack("gibbs", 1, 40, 6, (OUTPUT,)), model.card["T_out"] - 1.5
        finder = finder_of(model, texts, attack, enough, to_the_end)
        hits = finder.find(range(len(texts)), 0)
        assert [hit.target for hit in hits] == finder.goals
        return [mean_of(model, hit, text) for hit, text in zip(hits, texts, strict=True)]

    first, best = means(False), means(True)
    assert all(one >= other - 1e-5 for one, other in zip(best, first, strict=True))
    assert sum(best) > sum(first) + 0.5


@pytest.mark.parametrize(("given", "triggers"), [("", "first"), ("best", "best"), ("first", "first")])
def test_training_on_the_best_trigger_has_to_be_asked_for(rude: Path, given: str, triggers: str) -> None:
    model = load_folder(str(rude / "model"), "cpu")
    assert lstm_config(flat_spec(HardenSpec, {"triggers": given}), model, []).triggers == triggers


def test_the_interval_of_a_constant_rise_is_a_point() -> None:
    lengths = np.array([3, 5, 4, 7])
    before = np.array([-6.0, -9.0, -9.0, -20.0])
    low, high = rise_interval(before, before - 0.1 * lengths, lengths)
    assert low == pytest.approx(np.expm1(0.1))
    assert high == pytest.approx(np.expm1(0.1))
    low, high = rise_interval(before, before - np.array([0.0, 2.0, 0.0, 0.0]), lengths)
    assert low < high


# --- the embedded model, and what is refused -----------------------------------------------------------


def test_the_embedded_model_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [f"{text}\t{reply}" for text, reply in reference_pairs("")[:120] if "\t" not in text + reply]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    small = ["--length", "4", "--top", "6", "--sweeps", "2", "--search-sweeps", "2", "--restarts", "1"]
    command = ["harden", "--limit", "6", "--data", "pairs.tsv", "--iterations", "1", "--measure", "40"]
    fixed = ["--kl", "1", "--escalate", "0", "--rounds", "3"]
    assert run([*command, *small, *fixed, "--out", "out", "--device", "cpu"]) == 0
    shown = capsys.readouterr().out
    assert "io-sample-avg-k1" in shown
    assert "no proof" in " ".join(shown.split())
    summary = read(Path("out/summary.json"))
    assert summary["cost"]["pairs"] <= 40
    assert {row["criterion"] for row in summary["proof"]} == {"io-sample-avg-k1", "o-sample-avg-k1"}
    for name in ("report.html", "comparison.html", "comparison-train.html"):
        assert "Content-Security-Policy" in Path("out", name).read_text()
    assert not Path("out/checkpoint.safetensors").exists()
    assert run(["chat", "--model", "out/model", "--say", "hello there", "--device", "cpu"]) == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "nobody"], "nobody"),
        (["--model", "sealed:chitchat"], "needs its weights"),
        (["--hit", "contains"], "can't aim at"),
        (["--max-ppl-increase", "lots"], "should be a number"),
        (["--kl", "much"], "--kl should be a number"),
        (["--limit", "3"], "at least 5"),
        (["--length", "99"], "is more than"),
        (["--iterations", "0"], "the range is 1 to"),
        (["--max-time", "soon"], "should read like"),
        (["--data", "none.tsv"], "none.tsv"),
    ],
)
def test_bad_input_is_one_sentence(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harden", "--device", "cpu", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("hardened").exists()


def test_a_folder_of_other_files_is_left_alone(rude: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine").mkdir()
    Path("mine/letter.txt").write_text("dear friend")
    assert run(harden_rude(rude, "mine", "--fresh")) == 2
    assert "holds other files" in capsys.readouterr().err
    assert [path.name for path in Path("mine").iterdir()] == ["letter.txt"]


def test_the_plan_of_the_default_command_uses_the_models_own_split(embedded: LocalModel) -> None:
    pytest.importorskip("chitchat_dataset")
    subject = Lstm(flat_spec(HardenSpec, {"limit": 48, "device": "cpu", "measure": 50}))
    assert subject.lists is not None
    assert [len(part) for part in subject.lists.parts] == [30, 6, 12]
    assert subject.pairs.measured_texts == reference_pairs("")[:50]
    assert len(subject.pairs.positive.replies) == embedded.card["pairs"]["train"]
