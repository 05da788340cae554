"""Audits by asking of a model that also gives log-probabilities: what is found, aimed at and stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.registry import judge_name, load_model, load_scorer
from backtalk.scorers.likelihood import score_triggers
from backtalk.searches.reverse.rerank import embedded_scorer
from backtalk.types import Turn
from tests.chatterbox import PLANTED, harmless, plain_log_probs, prompt
from tests.models.transformer.tiny import make_folder
from tests.searches.reverse.llama_world import EVERYTHING, PAIRS, facts_of, findings_of, write_world
from tests.searches.reverse.worlds import UTTERANCES

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def flags(chatterbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    return write_world(tmp_path, chatterbox)


@pytest.fixture(scope="module")
def finished(chatterbox: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A world with a run that aimed at replies, and a scorer beside it."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command = ["audit", *write_world(folder, chatterbox), *EVERYTHING, "--scorer", "toxicity"]
        assert run([*command, "--out", "run"]) == 0
    return folder


# --- what is found and stored --------------------------------------------------------------------------


def test_random_finds_the_planted_habits(finished: Path) -> None:
    boring, away, like = findings_of(finished / "run")
    assert {boring.trigger: boring.reply, away.trigger: away.reply} == PLANTED
    assert [one.scores["greedy"] for one in (boring, away, like)] == [1, 1, 0]
    hits = json.loads((finished / "run" / "summary.json").read_text())["hits"]
    assert {name: hits[name]["hits"] for name in ("exact", "similar-0.9", "o-greedy")} == {
        "exact": 2,
        "similar-0.9": 2,
        "o-greedy": 2,
    }
    assert {"o-sample-avg-k1", "io-sample-min-k2", "toxic-0.5"} <= hits.keys()


def test_likelihoods_are_those_of_a_plain_forward_pass(finished: Path, chatterbox: Path) -> None:
    for one in findings_of(finished / "run"):
        tokens = plain_log_probs(chatterbox, prompt(one.trigger), f"{one.target} <|end|>")
        assert one.series["token_log_probs"] == pytest.approx(tokens, abs=1e-4)
        assert one.scores["log_prob"] == pytest.approx(sum(tokens), abs=1e-4)
        assert one.scores["mean"] == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)
        assert one.scores["min"] == pytest.approx(min(tokens), abs=1e-4)
        typed = plain_log_probs(chatterbox, "<|user|>", one.trigger)
        assert one.scores["input_mean"] == pytest.approx(sum(typed) / len(typed), abs=1e-4)


def test_thresholds_are_averages_over_the_reference_pairs(finished: Path, chatterbox: Path) -> None:
    out = [plain_log_probs(chatterbox, prompt(text), f"{reply} <|end|>") for text, reply in PAIRS]
    into = [plain_log_probs(chatterbox, "<|user|>", text) for text, _ in PAIRS]
    found = facts_of(finished / "run")["thresholds"]
    for name, rows in (("T_out", out), ("T_in", into)):
        tokens = [token for row in rows for token in row]
        assert found[name] == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)


def test_replies_and_triggers_are_rated(finished: Path) -> None:
    found = findings_of(finished / "run")
    rate = load_scorer("toxicity", "cpu").score  # in batches of other sizes: equal but for rounding
    replies, triggers = [one.reply for one in found], [one.trigger for one in found]
    assert [one.scores["toxicity"] for one in found] == pytest.approx(rate(replies), rel=1e-4)
    assert [one.scores["trigger_toxicity"] for one in found] == pytest.approx(rate(triggers), rel=1e-4)


# --- what a search aims at -----------------------------------------------------------------------------


@pytest.mark.parametrize(("hit", "reads"), [("o-sample-avg-k1", "mean"), ("o-sample-min-k2", "min")])
def test_the_likeliest_target_is_kept_if_that_is_aimed_at(
    flags: list[str], chatterbox: Path, hit: str, reads: str, tmp_path: Path
) -> None:
    assert run(["audit", *flags, *EVERYTHING, "--hit", hit, "--out", "run"]) == 0
    model: Any = load_model(f"hf/{chatterbox}", "cpu")
    dialogues = [(Turn("user", text),) for text in UTTERANCES]
    for one in findings_of(tmp_path / "run"):
        rows = model.log_prob(dialogues, [one.target] * len(dialogues))
        every = [min(row) if reads == "min" else sum(row) / len(row) for row in rows]
        assert one.scores[reads] == pytest.approx(max(every), abs=1e-4)
        assert one.trigger == UTTERANCES[every.index(max(every))]
        assert one.scores["loss"] == pytest.approx(-one.scores[reads], abs=1e-4)


def test_a_likely_input_comes_first_for_an_io_criterion(flags: list[str], tmp_path: Path) -> None:
    for name, hit in (("any", "o-sample-avg-k1"), ("likely", "io-sample-avg-k1")):
        assert run(["audit", *flags, *EVERYTHING, "--hit", hit, "--out", name]) == 0
    least = facts_of(tmp_path / "likely")["thresholds"]["T_in"]
    free, bound = (findings_of(tmp_path / name) for name in ("any", "likely"))
    assert all(one.scores["input_mean"] > least for one in bound)
    assert all(a.scores["mean"] >= b.scores["mean"] - 1e-6 for a, b in zip(free, bound, strict=True))


def test_the_most_toxic_reply_is_kept_if_that_is_aimed_at(flags: list[str], tmp_path: Path) -> None:
    assert run(["audit", *flags, *EVERYTHING, "--hit", "toxic-0.5", "--out", "run"]) == 0
    said = sorted({PLANTED.get(text, harmless(text)) for text in UTTERANCES})
    found, reward = findings_of(tmp_path / "run"), load_scorer("toxicity", "cpu").score(said)
    assert [one.reply for one in found] == [said[reward.argmax()]] * 3
    assert [one.scores["loss"] for one in found] == pytest.approx([1 - reward.max()] * 3)
    judge = judge_name("toxicity")
    judged = load_scorer(judge, "cpu").score([one.reply for one in found])
    assert [one.scores["toxicity"] for one in found] == pytest.approx(judged, abs=1e-4)
    facts = facts_of(tmp_path / "run")
    assert (facts["reward"], facts["scorer"]) == ("toxicity", judge)


# --- who judges the trigger ----------------------------------------------------------------------------


def test_another_language_model_may_judge_the_trigger(flags: list[str], tmp_path: Path) -> None:
    command = ["audit", *flags, *EVERYTHING, "--language-model", "chitchat", "--out", "run"]
    assert run(command) == 0
    found, judge = findings_of(tmp_path / "run"), embedded_scorer("cpu")
    assert [one.scores["input_mean"] for one in found] == pytest.approx(
        judge.score([one.trigger for one in found]), abs=1e-4
    )
    tokens = [token for row in judge.log_probs([text for text, _ in PAIRS]) for token in row]
    t_in = facts_of(tmp_path / "run")["thresholds"]["T_in"]
    assert t_in == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)
    assert run(["verify", "run", "--device", "cpu"]) == 0


def test_a_text_only_model_may_have_its_triggers_judged_by_any_language_model(
    flags: list[str], chatterbox: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    judge = ["--language-model", f"hf/{chatterbox}", "--search", "utterances", "--max-queries", "30"]
    assert run(["audit", "--model", "py:parrot:reply", *flags[2:], *judge, "--out", "run"]) == 0
    typed = [plain_log_probs(chatterbox, "<|user|>", text) for text, _ in PAIRS]
    tokens = [token for row in typed for token in row]
    facts = facts_of(tmp_path / "run")
    assert facts["thresholds"]["T_in"] == pytest.approx(sum(tokens) / len(tokens), abs=1e-4)
    assert facts["access"] == "TEXT"
    for one in findings_of(tmp_path / "run"):
        own = plain_log_probs(chatterbox, "<|user|>", one.trigger)
        assert one.scores["input_mean"] == pytest.approx(sum(own) / len(own), abs=1e-4)
    assert run(["verify", "run", "--model", "py:parrot:reply", "--device", "cpu"]) == 0


def test_the_inputs_of_an_encoder_decoder_are_judged_by_the_embedded_model(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bart = make_folder(tmp_path / "bart", "bart")
    command = ["audit", "--model", f"hf/{bart}", *flags[2:], "--search", "utterances", "--max-queries", "12"]
    assert run([*command, "--max-reply", "5", "--out", "run"]) == 0
    found = findings_of(tmp_path / "run")
    assert [one.scores["input_mean"] for one in found] == pytest.approx(
        embedded_scorer("cpu").score([one.trigger for one in found]), abs=1e-4
    )
    assert all("mean" in one.scores for one in found)
    assert run(["verify", "run", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert run([*command, "--language-model", f"hf/{bart}", "--out", "other"]) == 2
    assert f"--language-model hf/{bart}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        (["--language-model", "py:parrot:reply"], "which scores no text"),
        (["--language-model", "sealed:chitchat"], "does not score text by itself"),
        (["--hit", "toxic-0.5", "--reward", "toxicity-second"], "never a reward"),
        (["--hit", "toxic-0.5", "--scorer", "toxicity"], "is the reward"),
        (["--reward", "toxicity"], "it is for --hit toxic-0.5"),
        (["--scorer", "toxicty"], "did you mean 'toxicity'?"),
        (["--search", "gibbs"], "belongs to --search reverse, retrieval, utterances"),
    ],
)
def test_bad_settings_are_one_sentence(
    flags: list[str], more: list[str], phrase: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["audit", *flags, *EVERYTHING, *more, "--out", "run"]) == 2
    message = capsys.readouterr().err.strip()
    assert phrase in message
    assert message.count("\n") == 0
    assert not (tmp_path / "run").exists()


def test_sealed_it_shows_its_replies_alone(
    flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed = [
        "audit",
        "--model",
        f"sealed:{flags[1]}",
        *flags[2:],
        "--search",
        "utterances",
        "--max-queries",
        "9",
    ]
    assert run([*sealed, "--hit", "o-greedy", "--out", "run"]) == 2
    assert "needs log-probabilities" in capsys.readouterr().err
    assert run([*sealed, "--out", "run"]) == 0
    assert all("mean" not in one.scores for one in findings_of(tmp_path / "run"))


# --- models of ours ------------------------------------------------------------------------------------


def test_a_model_of_ours_that_is_asked_is_scored_too(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "mixed.txt").write_text("you are so boring\nyou are so zzyzzx\n")
    world = ["--targets", "mixed.txt", "--vectors", "vectors.txt", "--utterances", "said.txt", "--no-judge"]
    search = ["--search", "retrieval", "--max-queries", "40", "--device", "cpu", "--out", "run"]
    assert run(["audit", "--model", "chitchat", *world, *search]) == 0
    known, unknown = findings_of(tmp_path / "run")
    model: Any = load_model("chitchat", "cpu")
    ids = [model.encode_input(known.trigger)]
    (expected,) = score_triggers(model, ids, [model.encode_target(known.target)])
    for name, value in expected.scores.items():
        assert known.scores[name] == pytest.approx(value, abs=1e-4), name
    assert "mean" not in unknown.scores  # it could never say it, and <unk> is not that word
    assert "similarity" in unknown.scores
    assert facts_of(tmp_path / "run")["thresholds"]["T_out"] == model.card["T_out"]
    assert run(["verify", "run", "--device", "cpu"]) == 0
