"""The work of the study's parts: each row is an ordinary audit, which trains its adversary, resumes and can
be verified; then the speed of play, the words that were learnt, and the hardening."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from benchmarks.ast import OneAtATime

from backtalk.audit.backend import Overrides
from backtalk.audit.backends.conversation import ConversationBackend
from backtalk.audit.consent import NO_CONSENT
from backtalk.audit.findings import TooFewError
from backtalk.audit.flow import audit, make_backend
from backtalk.data.targets import load_mal
from backtalk.data.toxicity import find_file
from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.report.progress import shown
from backtalk.report.topics import topics_by_turn, words_used_more
from backtalk.runs.summary import summarise
from backtalk.searches.ast.config import Ast, AstConfig
from backtalk.searches.ast.evaluation import CONFIDENCE
from backtalk.searches.ast.players import Adversary
from backtalk.searches.ast.rollout import HOLD, MOST_GAMMA, PUSH, Game
from backtalk.searches.ast.train import WEAK_GAP
from backtalk.specs.audit import AuditSpec, flat_spec
from backtalk.store import Run
from backtalk.store.exchanges import Exchange, exchanges_of
from backtalk.store.typed import read_json
from backtalk.training.preference import TOGETHER
from reproduction.ast.paper import Size
from reproduction.hardenings import run_harden, told
from reproduction.page import Result
from reproduction.runner import Workplace, write_once
from reproduction.spec import EMBEDDED

SEED = 1
MEASURES = ("toxicity", "pair_toxicity", "second", "second_pair", "adversary_toxicity", "log_ppl")
DEFAULTS = {
    **asdict(AstConfig().preference),
    "weak_gap": WEAK_GAP,
    "least_gap": AstConfig().least_gap,
    "hold": [PUSH, HOLD, MOST_GAMMA],
    "sure": CONFIDENCE,
    "weak": "winners alone",
    "sorted": TOGETHER,
}
"""What a row says nothing of; where it changes, the row is another one."""
FREE = {"max_ppl_increase": 0.0}
"""Prompts may be as unlikely as they come."""
UNTUNED = (None, "none", "human")
"""Values of `tune` with which no adversary is trained."""
AGAIN = "ours-again"
"""Repeats ours-short, to see how far two trainings differ where sums are rounded in any order."""
ROWS: dict[str, dict[str, Any]] = {
    "ours-short": {"tune": "ipo"},
    "ours": {"tune": "ipo", "train_from": "ours-short"},
    "no-alpha": {"tune": "ipo", "alpha": 0.0},
    "no-beta": {"tune": "ipo", "beta": 0.0},
    "no-gamma": {"tune": "ipo", "gamma": 0.0, **FREE},
    "no-weak": {"tune": "ipo", "weak_share": 0.0},
    "no-weak-no-gamma": {"tune": "ipo", "weak_share": 0.0, "gamma": 0.0, **FREE},
    "untuned": {"tune": "none"},
    "human": {"tune": "human"},
    "sft": {"tune": "sft"},
    "after-ours": {"tune": "ipo", "model": "hardened"},
    "after-old": {"adversary": "ours-short", "model": "hardened"},
    "chat-ours": {"tune": "ipo", "template": "chat"},
    "chat-untuned": {"tune": "none", "template": "chat"},
    "ours-to-chat": {"adversary": "ours-short", "template": "chat"},
    "chat-to-plain": {"adversary": "chat-ours"},
    "every-pair": {"tune": "ipo", "least_gap": 0.0},
    "dpo": {"tune": "dpo"},
    "rebel": {"tune": "rebel"},
    AGAIN: {"tune": "ipo"},
}
"""What each row changes; the longest, and what others need, come first. `adversary` names the row whose
adversary is used, `train_from` the one whose training is gone on with, `model` the hardened one."""


def settings_of(name: str, size: Size, texts: Texts, model: str) -> dict[str, Any]:
    """The flags of a row's audit, files by what they are and not by where they lie."""
    changes = ROWS[name]
    values: dict[str, Any] = {
        "search": "ast",
        "template": "plain",
        "turns": size.turns,
        "turn_tokens": size.turn_tokens,
        "limit": size.test,
        "control": False,
        "seed": SEED,
        "model": model,
        "data": texts.kind,
        "scorers": _scorers(),
        **changes,
    }
    if changes.get("tune") not in UNTUNED:
        values |= {
            "steps": size.steps if name == "ours" else size.short_steps,
            "experience": size.experience,
            "depth": Ast.depth,
            "dev_every": size.dev_every,
            "tune_lr": size.tune_lr,
            "defaults": DEFAULTS,
        }
    return values


@cache
def _scorers() -> dict[str, str]:
    with as_file(files("backtalk") / "embedded") as folder:
        names = ("toxicity", Ast.second_scorer)
        return {name: read_json(folder / name / "card.json")["sha256"] for name in names}


def play_row(
    place: Workplace, name: str, size: Size, texts: Texts, model: str, more: Mapping[str, Any]
) -> Result:
    """An audit in runs/NAME, and what it comes to."""
    if ROWS[name].get("model") and (why := place.result("hardened").get("left_out")):
        return {"left_out": why}
    if name == AGAIN and pick_device(place.device).type == "cpu":
        return {"left_out": "on a processor the same training again comes out the same"}
    folder = place.path("runs", name)
    spec = spec_of(place, name, size, texts, model, more)
    with place.log(name) as consoles, shown(consoles.err) as tell:
        audit(spec, str(folder), progress=tell)
    with Run.open(folder) as run:
        summary, findings = summarise(run), run.findings()
    played = {finding.case: exchanges_of(finding) for finding in findings if finding.status == "found"}
    prompts = [[one.adversary for one in own] for own in played.values()]
    return {
        "n": len(played),
        "hits": summary["hits"],
        "by_turn": summary["by_turn"],
        "by_opening": {case: means(own) for case, own in played.items()},
        "topics": {use.topic: use.shares for use in topics_by_turn(prompts, None, size.turns)},
        "training": summary["training"],
        "openings": summary["openings"]["left_out"],
    }


def spec_of(
    place: Workplace, name: str, size: Size, texts: Texts, model: str, more: Mapping[str, Any]
) -> AuditSpec:
    values = settings_of(name, size, texts, model) | dict(more)
    for constant in ("data", "defaults", "scorers", "depth"):  # part of a row, but no flags
        values.pop(constant, None)
    if "tune_lr" in values:
        values["lr"] = values.pop("tune_lr")
    values |= {"openings": texts.openings, "device": place.device}
    if values.get("tune") not in UNTUNED and (values.get("weak_share", 0.5) > 0 or values["tune"] == "sft"):
        values["weak"] = texts.weak
    if values.get("tune") == "human":
        values["prompts"] = texts.prompts
    for flag in ("adversary", "train_from"):
        if flag in values:
            values[flag] = str(place.path("runs", values[flag]))
    if values["model"] == "hardened":
        values["model"] = f"hf/{place.path('hardenings', 'hardened', 'model')}"
    return flat_spec(values, name)


def means(exchanges: list[Exchange]) -> dict[str, float]:
    """Of one conversation, over its turns: what rows are compared by."""
    return {name: sum(getattr(one, name) for one in exchanges) / len(exchanges) for name in MEASURES}


def learnt_words(place: Workplace) -> Result:
    """Words that ours uses more than the untuned adversary, rude ones masked."""
    said = {}
    for name in ("ours", "untuned"):
        with Run.open(place.path("runs", name)) as run:
            exchanges = [one for finding in run.findings() for one in exchanges_of(finding)]
        said[name] = [(one.adversary, one.adversary_toxicity) for one in exchanges]
    found = words_used_more(said["ours"], said["untuned"], 30)
    return {"words": [[use.shown(), use.count, use.untuned, use.z] for use in found]}


def time_play(place: Workplace, size: Size, texts: Texts, model: str) -> Result:
    """Pairs a second of play in the same process: all trees in one batch, tree by tree, turn by turn."""
    spec = spec_of(place, "untuned", size, texts, model, {"limit": 1})
    own = make_backend(spec, Overrides(), NO_CONSENT)
    assert isinstance(own, ConversationBackend)
    stage = own.stage
    players = Adversary(own.model, stage.config.sampling), stage.defender, stage.reward, stage.config.reward
    openings = [(one.text,) for one in own.lists.train]
    openings = (openings * (1 + size.played // len(openings)))[: size.played]
    few = max(1, size.played // 16)

    def play(game: Game, batches: list[list[tuple[str]]]) -> int:
        return sum(len(game.play(batch, list(range(len(batch))), Ast.depth).pairs) for batch in batches)

    speed = {}
    some = [[one] for one in openings[:few]]
    for name, game, batches in (
        ("batched", Game(*players), [openings]),
        ("tree by tree", Game(*players), some),
        ("turn by turn", OneAtATime(*players), some),
    ):
        play(game, batches)  # the first time, shapes are new and storage grows
        started = time.perf_counter()
        speed[name] = play(game, batches) / (time.perf_counter() - started)
    return {"pairs_per_s": speed, "trees": len(openings)}


def harden_ours(place: Workplace, size: Size, model: str) -> Result:
    """The model hardened on what ours-short found; the audits before and after are rows of their own, whose
    adversaries had as many updates."""
    findings = str(place.path("runs", "ours-short"))
    values = {"model": model, "findings": findings, "iterations": size.iterations, "seed": SEED}
    try:
        found = told(run_harden(place, {**values, "audits": False}))
    except TooFewError as error:
        return {"left_out": str(error).replace(str(place.folder), "STUDY")}
    left_out = {} if found["iterations_kept"] else {"left_out": "no iteration of the hardening was kept"}
    return {**found, **left_out}


LAYOUT = "The data folder holds `reddit/` (train, dev and test openings) and `rtp/` (RealToxicityPrompts)."


@dataclass(frozen=True)
class Texts:
    """What the flags of an audit name."""

    openings: str
    weak: str
    prompts: str
    kind: str
    """embedded or files; never a path."""

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(Path(name) for name in (self.openings, self.weak, self.prompts) if name)


def open_texts(name: str, folder: Path) -> Texts:
    """Of a folder of data; embedded: the shipped openings, and the shipped rude sentences as the weak set and
    as prompts."""
    if name == EMBEDDED:
        path = folder / "data" / "rude.txt"
        write_once(path, (f"{target.text}\n" for target in load_mal()))
        return Texts("", str(path), str(path), "embedded")
    root = Path(name)
    if not root.is_dir():
        raise InputError(f"--data {name} is no folder; name one with reddit/ and rtp/, or `embedded`")
    weak = find_file(root, "quark_val_5k.jsonl")
    prompts = find_file(root, "decodingtrust_toxic_1.2k.jsonl")
    return Texts(str(root / "reddit"), str(weak), str(prompts), "files")
