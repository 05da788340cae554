"""The contests on a real model, on a tiny one: draws, the judge, the FLOPs that are charged, and the pages.
nanoGCG itself has an environment of its own; here its records are written by hand."""

from __future__ import annotations

import json
import math
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from benchmarks.peers import exact, flops, front, nanogcg_side, subject
from benchmarks.peers.__main__ import main
from benchmarks.peers.contest import check_peer
from benchmarks.peers.exact import choose
from benchmarks.peers.flops import Meter, mean_interval
from benchmarks.peers.jobs import PeerProcess, kept, run_peer
from benchmarks.peers.our_side import MEAN_LOSS
from benchmarks.peers.referee import Judged, Referee
from benchmarks.peers.subject import Goal, Subject, count_parameters, draw_sentences, draw_tokens, export

from backtalk.data.targets import make_targets
from backtalk.errors import InputError
from backtalk.registry import load_model, search_config
from backtalk.searches.watch import Watch
from backtalk.specs import ModelOptions
from tests.models.transformer.tiny import CHATML, make_network, make_tokenizer

pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.usefixtures("one_thread")
SHORT = ["go", "no", "you", "rude", "you are", "dogs", "rain"]
Tiny = tuple[Subject, Referee]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("contests")
    tokenizer = make_tokenizer("llama", CHATML)
    tokenizer.save_pretrained(folder / "tiny")
    make_network("llama", len(tokenizer), positions=512).save_pretrained(folder / "tiny")
    made = export(f"hf/{folder / 'tiny'}", folder / "models")
    return made, Referee(made.folder)


def load(made: Subject) -> Any:
    return load_model(f"hf/{made.folder}", "cpu", ModelOptions(dtype="float32"))


def test_the_model_is_saved_for_old_and_new_releases(tiny: Tiny) -> None:
    made, referee = tiny
    original = Referee(made.folder.parents[1] / "tiny")
    ids = torch.arange(5, 25)[None]
    assert torch.equal(referee.network(ids).logits, original.network(ids).logits)
    config = json.loads((made.folder / "config.json").read_text())
    assert config["rope_theta"] == 10000.0  # transformers 4 looks for it here
    assert "rope_parameters" not in config
    assert json.loads((made.folder / "tokenizer_config.json").read_text())["chat_template"] == CHATML
    assert referee.prompt("hello") == original.prompt("hello")
    attention, gate, norms = 32 * (32 + 16 + 16 + 32), 3 * 32 * 64, 2 * 32
    assert made.parameters == count_parameters(referee.network) == 2 * (attention + gate + norms) + 32
    assert referee.tokenizer.decode([made.end]) == "<|im_end|>"
    before = (made.folder / "model.safetensors").stat().st_mtime_ns
    assert export(f"hf/{made.folder.parents[1] / 'tiny'}", made.folder.parent) == made
    assert (made.folder / "model.safetensors").stat().st_mtime_ns == before
    assert [one.name for one in made.folder.parent.iterdir()] == [made.folder.name]


def test_sentences_are_drawn_by_seed(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    made, referee = tiny
    monkeypatch.setattr(subject, "load_mal", lambda: make_targets([*SHORT, "i like cats " * 9]))
    monkeypatch.setattr(subject, "SHORTEST", 2)
    every = draw_sentences(referee, made.end, len(SHORT), 1)
    assert {goal.text for goal in every} == {
        f"{text}<|im_end|>" for text in SHORT
    }  # the long one does not fit
    assert all(goal.ids == referee.tokens(goal.text) and goal.ids[-1] == made.end for goal in every)
    assert draw_sentences(referee, made.end, 3, 1) == every[:3]
    assert any(draw_sentences(referee, made.end, len(SHORT), seed) != every for seed in (2, 3))
    with pytest.raises(InputError, match="7 targets"):
        draw_sentences(referee, made.end, 8, 1)


def test_random_tokens_survive_as_text(tiny: Tiny) -> None:
    _, referee = tiny
    goals = draw_tokens(referee, 3, 6, 1)
    assert [len(goal.ids) for goal in goals] == [6, 6, 6]
    before = referee.prompt("hello there")
    for goal in goals:
        assert referee.tokens(goal.text) == goal.ids
        assert referee.tokens(referee.tokenizer.decode(before) + goal.text) == [*before, *goal.ids]
        assert not set(goal.ids) & set(referee.tokenizer.all_special_ids)
    assert draw_tokens(referee, 2, 6, 1) == goals[:2]
    assert draw_tokens(referee, 1, 6, 2) != goals[:1]


def test_the_referee_reads_and_replies_as_a_plain_forward_does(tiny: Tiny) -> None:
    _, referee = tiny
    ids, goal = referee.tokens("hello there you"), referee.tokens("rude person")
    context = referee.prompt("hello there you")
    assert context == [*referee.before, *ids, *referee.after]
    with torch.no_grad():
        chances = referee.network(torch.tensor([[*context, *goal]])).logits[0].log_softmax(-1)
    wanted = [float(chances[len(context) - 1 + i, token]) for i, token in enumerate(goal)]
    rows = [(context, goal), (context[:5], goal[:1]), (context, goal)]
    found = referee.score(rows)
    assert found[0] == found[2]
    assert found[0][0] == pytest.approx(-sum(wanted) / len(goal), rel=1e-5)
    written: list[int] = []
    for _ in range(4):  # one token after another, everything read again
        with torch.no_grad():
            logits = referee.network(torch.tensor([[*context, *written]])).logits[0, -1]
        written.append(int(logits.argmax()))
    reply = referee.reply("hello there you", 4)
    assert reply == written[: len(reply)]
    assert referee.score([(context, reply)])[0][1]
    worse = [*reply[:-1], (reply[-1] + 1) % 300]
    assert not referee.score([(context, worse)])[0][1]


def test_a_trigger_that_can_not_be_typed_is_judged_both_ways(tiny: Tiny) -> None:
    _, referee = tiny
    whole = referee.tokens("hello")
    apart = [token for letter in "hello" for token in referee.tokens(letter)]
    assert len(whole) < len(apart)
    context = [*referee.before, *apart, *referee.after]
    with torch.no_grad():
        goal = [int(referee.network(torch.tensor([context])).logits[0, -1].argmax())]
    first, second = referee.judge([apart, whole], goal)
    assert (first.hit, first.survives, second.survives) == (True, False, True)
    assert first.typed_hit == second.hit == second.typed_hit


def test_an_exact_trigger_is_chosen_before_one_of_lower_loss() -> None:
    low, tokens = Judged([1], 0.1, False, True, False), Judged([2], 0.2, True, False, False)
    typed, worse = Judged([3], 0.9, True, True, True), Judged([4], 1.0, True, True, True)
    assert choose([low, tokens, worse, typed]) is typed
    assert choose([low, tokens]) is tokens
    assert choose([]) is None


def test_the_interval_of_a_mean() -> None:
    # The mean of 100 draws from 50 zeros and 50 ones is binomial: 95% of it lies between 0.40 and 0.60.
    middle, low, high = mean_interval([0.0, 1.0] * 50)
    assert middle == 0.5
    assert low == pytest.approx(0.40, abs=0.011)
    assert high == pytest.approx(0.60, abs=0.011)
    assert mean_interval([-2.0] * 5) == (-2.0, -2.0, -2.0)


LENGTH, TOP, ROWS = 4, 5, 2


@pytest.mark.parametrize(
    ("name", "precision", "starts", "more"),
    # Scores of whole triggers at the start, and beside the candidates of a position or step.
    [
        ("gibbs", "float32", 1, 0),
        ("gibbs", "bfloat16", 1, 5),
        ("gcg", "float32", 4, 1),
        ("gcg", "bfloat16", 4, 5),
    ],
)
@pytest.mark.parametrize("branches", [0.5, 1.0])
def test_a_sweep_is_charged_as_counted_by_hand(
    tiny: Tiny, name: str, precision: str, starts: int, more: int, branches: float
) -> None:
    made, referee = tiny
    model, around = load(made), len(referee.before) + len(referee.after)
    meter = Meter(model, made.parameters, around, ROWS, math.inf)
    goals = [goal.ids for goal in draw_tokens(referee, ROWS, 3, 1)]
    search = search_config(name)(LENGTH, TOP, 1, precision=precision, branches=branches)
    search.run(model, MEAN_LOSS, goals, range(ROWS), Watch(late=meter.late))
    whole = made.parameters * (around + LENGTH + 3)
    assert meter.flops == whole * (2 * starts + LENGTH * (6 + 2 * (TOP + more)))
    assert meter.candidates == ROWS * (starts + LENGTH * (TOP + more))


def test_rows_that_are_read_alone_are_charged_to_all(tiny: Tiny) -> None:
    meter = Meter(load(tiny[0]), 1000, 30, 4, math.inf)
    meter.charge(2, 1, 10)
    assert meter.flops == 2 * 1000 * 40
    meter.charge(2, 5, 10)
    assert meter.flops == 2 * 1000 * 40 * (1 + 2)


def test_a_search_stops_before_its_flops_are_over(tiny: Tiny) -> None:
    made, referee = tiny
    model, around = load(made), len(referee.before) + len(referee.after)
    step = made.parameters * (around + LENGTH + 3) * (6 + 2 * TOP)
    meter = Meter(model, made.parameters, around, ROWS, 6.5 * step)
    goals = [goal.ids for goal in draw_tokens(referee, ROWS, 3, 1)]
    arguments = Namespace(length=LENGTH, target_tokens=3, top=TOP, anneal=0.0)
    search = replace(flops.sized("gibbs", model, arguments, meter), precision="float32")
    found = search.run(model, MEAN_LOSS, goals, range(ROWS), Watch(late=meter.late))
    assert 5.5 * step < meter.flops <= 6.5 * step
    scored = referee.judge([found[0].ids], goals[0])[0]
    assert found[0].loss == pytest.approx(scored.loss, rel=1e-4)  # the loss that the referee computes


class FakeGCG:
    """Steps of nanoGCG: a start, then a gradient and candidates, again and again."""

    def __init__(self, model: Any, tokenizer: Any, config: Any) -> None:
        self.target_ids = torch.tensor([[7, 8]])

    def compute_token_gradient(self, optim_ids: torch.Tensor) -> None: ...

    def _compute_candidates_loss_original(self, size: int, embeds: torch.Tensor) -> torch.Tensor:
        return torch.arange(len(embeds)).float() + 1

    def run(self) -> None:
        self.before_embeds, self.after_embeds, self.target_embeds = (torch.zeros(1, n, 1) for n in (10, 3, 2))
        self._compute_candidates_loss_original(1, torch.zeros(1, 4 + 5, 1))
        while True:
            self.compute_token_gradient(torch.zeros(1, 4, dtype=torch.long))
            self._compute_candidates_loss_original(6, torch.zeros(6, 4 + 5, 1))


def test_nanogcg_is_charged_for_whole_prompts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = ModuleType("nanogcg"), ModuleType("nanogcg.gcg")
    module.GCG = FakeGCG  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nanogcg", package)
    monkeypatch.setitem(sys.modules, "nanogcg.gcg", module)
    whole = 1000 * (10 + 4 + 3 + 2)
    step = whole * (6 + 2 * 6)
    search = nanogcg_side.watched_class()(None, None, None)
    search.start({"seconds": 0.0, "flops": 3.5 * step, "parameters": 1000, "clock": "wall"})
    with pytest.raises(nanogcg_side.LimitReached):
        search.run()
    assert search.flops == 2 * whole + 3 * step
    assert len(search.incumbents) == len(search.losses) == 4
    assert (search.candidates, search.forward_tokens, search.gradient_tokens) == (19, 19 * 9, 3 * 9)


def peer_record(
    referee: Referee, job: Mapping[str, Any], goal: Goal, triggers: list[list[int]]
) -> dict[str, Any]:
    """What nanoGCG's process would write."""
    losses = [one.loss for one in referee.judge(triggers, goal.ids)]
    return {
        "job": job, "tool": "nanogcg", "versions": {"nanogcg": "0.3.0"}, "seconds": 1.5, "candidates": 10,
        "forward_tokens": 90, "gradient_tokens": 10, "flops": 5.0, "target_ids": goal.ids,
        "own_losses": losses, "incumbents": [[float(at), ids] for at, ids in enumerate(triggers)],
    }  # fmt: skip


def test_nanogcg_must_have_read_the_same_prompt(tiny: Tiny) -> None:
    _, referee = tiny
    (goal,), trigger = draw_tokens(referee, 1, 3, 1), referee.tokens("you are rude")
    job = {"dtype": "float32", "tf32": False}
    record = peer_record(referee, job, goal, [trigger])
    check_peer(record, goal, referee)
    with pytest.raises(InputError, match="other tokens"):
        check_peer({**record, "target_ids": [1, 2, 3]}, goal, referee)
    other = [record["own_losses"][0] + 0.1]
    with pytest.raises(InputError, match="and the referee"):
        check_peer({**record, "own_losses": other}, goal, referee)
    check_peer({**record, "own_losses": other, "job": {**job, "dtype": "bfloat16"}}, goal, referee)


def test_jobs_that_are_done_are_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def run(self: PeerProcess, command: list[str], ours: bool = False) -> None:
        for path, job in json.loads(Path(command[1]).read_text())["jobs"]:
            done.append(job["target"])
            Path(path).write_text(json.dumps({"job": job, "at": len(done)}))

    monkeypatch.setattr(PeerProcess, "run", run)
    process, job = PeerProcess(""), {"width": 4, "weights": (1, 2)}
    run_peer(process, tmp_path, job, {0: "a"}, tmp_path / "jobs")
    found = run_peer(process, tmp_path, job, {0: "a", 1: "b"}, tmp_path / "jobs")
    assert [found[number]["at"] for number in (0, 1)] == [1, 2]
    run_peer(process, tmp_path, {**job, "width": 5}, {0: "a"}, tmp_path / "jobs")
    assert done == ["a", "b", "a"]
    path = tmp_path / "own.json"
    assert kept(path, {"x": (1,)}, lambda: {"value": 1})["value"] == 1
    assert kept(path, {"x": (1,)}, lambda: {"value": 2})["value"] == 1
    assert kept(path, {"x": (2,)}, lambda: {"value": 3})["value"] == 3


def test_repetition_and_flrt_objective() -> None:
    ids = torch.tensor([[5, 5, 5, 7, 7, 9], [1, 2, 3, 4, 5, 6]])
    assert front.repetition(ids).tolist() == pytest.approx([(2**1.5 + 1) / 6, 0.0])
    objective = front.objective_of("flrt", 0.5, 2.0)
    log_probs = torch.full((2, 6), -3.0)
    assert objective.reads_input
    assert objective.input_loss(log_probs, ids).tolist() == pytest.approx(
        [0.5 * (3 + 2 * (2**1.5 + 1) / 6), 1.5]
    )
    assert torch.equal(objective.input_weights(log_probs), torch.full((2, 6), 0.5 / 6))
    ours = front.objective_of("ours", 0.5, 2.0)
    assert ours.input_loss(log_probs, ids).tolist() == pytest.approx([0.5 * (3 + 5 * 3 / 6), 1.5])


def test_the_front_holds_what_no_point_beats() -> None:
    assert front.pareto([(1.0, 5.0), (2.0, 4.0), (2.0, 6.0), (3.0, 4.0), (1.0, 5.0)]) == [0, 1, 4]


@pytest.fixture
def short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "load_mal", lambda: make_targets(SHORT))
    monkeypatch.setattr(subject, "SHORTEST", 2)


def flags(tiny: Tiny, tmp_path: Path, *more: str) -> list[str]:
    made, _ = tiny
    return [
        *("--model", f"hf/{made.folder.parents[1] / 'tiny'}", "--threads", "1", "--targets", "2"),
        *("--work", str(tmp_path / "work"), "--out", str(tmp_path), *more),
    ]


def fake_peer(referee: Referee, triggers: list[list[int]]) -> Any:
    def run(self: PeerProcess, command: list[str], ours: bool = False) -> None:
        for path, job in json.loads(Path(command[1]).read_text())["jobs"]:
            goal = Goal(job["target"], referee.tokens(job["target"]))
            Path(path).write_text(json.dumps(peer_record(referee, job, goal, triggers)))

    return run


def test_equal_flops_from_the_command_to_the_page(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, referee = tiny
    triggers = [referee.tokens("you are rude"), referee.tokens("i like dogs")]
    monkeypatch.setattr(PeerProcess, "run", fake_peer(referee, triggers))
    budget = made.parameters * 5000
    one = flags(tiny, tmp_path, "--flops", str(budget), "--length", "3", "--target-tokens", "3", "--top", "4")
    assert main(["flops", *one, "--tools", "gcg", "--search-only"]) == 0
    assert not (tmp_path / "peers-flops.json").exists()
    assert main(["flops", *one]) == 0
    found = json.loads((tmp_path / "peers-flops.json").read_text())
    tools, goals = found["tools"], draw_tokens(referee, 2, 3, 1)
    for number, goal in enumerate(goals):
        assert tools["nanogcg"]["losses"][number] == min(x.loss for x in referee.judge(triggers, goal.ids))
    for name in ("gibbs", "gcg"):
        assert 0.8 * budget < tools[name]["flops"][0] <= budget
        gaps = [a - b for a, b in zip(tools[name]["losses"], tools["nanogcg"]["losses"], strict=True)]
        assert tools[name]["interval"] == list(mean_interval(gaps))
        assert tools[name]["survive"] == [True, True]
        assert tools[name]["tokens_run"] < budget / made.parameters / 2  # shared tokens are read once
    page = (tmp_path / "peers-flops.md").read_text()
    assert "| nanoGCG |" in page
    assert str(tmp_path) not in page.replace(f"hf/{made.folder.parents[1] / 'tiny'}", "")


@pytest.mark.usefixtures("short_list")
def test_exact_replies_from_the_command_to_the_page(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, referee = tiny
    monkeypatch.setattr(PeerProcess, "run", fake_peer(referee, [referee.tokens("i like dogs")]))
    one = flags(tiny, tmp_path, "--seconds", "60", "--length", "3", "--top", "4", "--restarts", "2")
    assert main(["exact", *one, "--sweeps", "2", "--tools", "gibbs,nanogcg"]) == 0
    found = json.loads((tmp_path / "peers-exact.json").read_text())
    ours, goals = found["tools"]["gibbs"], draw_sentences(referee, tiny[0].end, 2, 1)
    assert found["targets"] == [goal.text for goal in goals]
    assert ours["judged"] == 4  # two restarts of two targets
    for number, goal in enumerate(goals):
        reply = referee.reply(ours["triggers"][number], len(goal.ids))
        assert ours["exact"][number] == (reply == goal.ids)
        (judged,) = referee.judge([referee.trigger(ours["triggers"][number])], goal.ids)
        assert ours["losses"][number] == pytest.approx(judged.loss, rel=1e-5)
    assert ours["survive"] == 2
    assert found["tools"]["nanogcg"]["seconds"] == 3.0
    assert (tmp_path / "peers-exact.md").read_text().count(" of 2 ") == 6


def test_a_reply_that_is_the_target_counts_as_exact(tiny: Tiny) -> None:
    made, referee = tiny
    trigger = referee.tokens("you are rude")
    reply = referee.reply("you are rude", 3)
    goals = [Goal("planted", reply), Goal("other", [*reply[:-1], made.end - 1])]
    parts = {"versions": {"torch": "2"}, "seconds": 1.0, "candidates": 4}
    arguments = Namespace(**dict.fromkeys(exact.SETTINGS, 0))
    found = exact.summarise(arguments, {"gibbs": {**parts, "held": [[trigger], [trigger]]}}, goals, referee)
    assert found["tools"]["gibbs"]["exact"] == found["tools"]["gibbs"]["exact_as_tokens"] == [True, False]


@pytest.mark.usefixtures("short_list")
def test_the_front_from_the_command_to_the_page(tiny: Tiny, tmp_path: Path) -> None:
    _, referee = tiny
    one = flags(tiny, tmp_path, "--weights", "0.1,2", "--length", "3", "--top", "4", "--sweeps", "2")
    assert main(["front", *one]) == 0
    found = json.loads((tmp_path / "peers-front.json").read_text())
    points = found["points"]
    assert [(one["objective"], one["weight"]) for one in points] == [
        ("ours", 0.1), ("ours", 2.0), ("flrt", 0.1), ("flrt", 2.0),
    ]  # fmt: skip
    assert all(one["candidates"] == 2 * 3 * 4 * 2 for one in points)
    ids = [referee.trigger(text) for text in points[0]["triggers"]]
    losses = [loss for loss, _ in referee.score([(referee.before, own) for own in ids])]
    assert points[0]["log_perplexity"] == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert found["front"] == front.pareto([(one["mean_loss"], one["log_perplexity"]) for one in points])
