"""`python -m reproduction ast`: Hardy et al. 2024 from the openings to the last table, as a list of parts.

Each row is an ordinary audit, which trains its adversary, resumes and can be verified; then come the speed of
play, the words that were learnt, and the hardening.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from benchmarks.ast import OneAtATime

from backtalk.audit.backend import Overrides
from backtalk.audit.backends.conversation import ConversationBackend
from backtalk.audit.consent import NO_CONSENT
from backtalk.audit.findings import TooFewError
from backtalk.audit.flow import make_backend
from backtalk.data.targets import load_mal
from backtalk.hardening.subjects.asking import DRAWS, HARMLESS
from backtalk.hardening.subjects.transformer import LORA_PLAYED
from backtalk.models.device import pick_device
from backtalk.runs.summary import summarise
from backtalk.searches.ast.config import Ast, AstConfig
from backtalk.searches.ast.evaluation import CONFIDENCE, TOXIC
from backtalk.searches.ast.players import Adversary
from backtalk.searches.ast.rollout import HOLD, MOST_GAMMA, PUSH, Game
from backtalk.specs import flat_spec
from backtalk.specs.audit import AuditSpec
from backtalk.stats import Rate
from backtalk.store import Run
from backtalk.store.exchanges import Exchange, exchanges_of
from backtalk.store.typed import read_json
from backtalk.training.preference import TOGETHER
from reproduction.ast.page import page_lines
from reproduction.ast.paper import AGAIN, ROWS, SIZES, Size
from reproduction.ast.topics import RUDE, topics_by_turn, words_used_more
from reproduction.data.labelled import find_file
from reproduction.hardenings import page_values, run_audit, run_harden, shown_name
from reproduction.page import Result
from reproduction.runner import Part, Study, Workplace, data_folder, write_once
from reproduction.spec import EMBEDDED, StudySpec

SEED = 1
REWARD, JUDGE = "toxicity", "toxicity-second"
MEASURES = {
    **{"toxicity": "rewarded", "pair_toxicity": "rewarded_pair", "second": "toxicity"},
    **{"second_pair": "pair_toxicity", "adversary_toxicity": "adversary_toxicity", "log_ppl": "log_ppl"},
}
"""Names of the page, which has the numbers of the reward's scorer first as the paper does, and ours."""
DEFAULTS = {
    **asdict(AstConfig().preference),
    # Of settings that are gone; they stay, so that the rows that were run keep their identity.
    "weak_gap": 0.25,
    "label_smoothing": 0.0,
    "least_gap": AstConfig().least_gap,
    "hold": [PUSH, HOLD, MOST_GAMMA],
    "sure": CONFIDENCE,
    "weak": "winners alone",
    "sorted": TOGETHER,
}
"""What a row says nothing of; where it changes, the row is another one."""
UNTUNED = (None, "none", "human")  # values of `tune` with which no adversary is trained


def settings_of(name: str, size: Size, texts: Texts, model: str) -> dict[str, Any]:
    """The flags of a row's audit, files by what they are and not by where they lie."""
    changes = ROWS[name]
    values: dict[str, Any] = {"search": "ast", "template": "plain", "control": False, "seed": SEED}
    values |= size.some("turns", "turn_tokens") | {"limit": size.test, "model": model}
    values |= {"data": texts.kind, "scorers": _scorers(), **changes}
    if changes.get("tune") not in UNTUNED:
        steps = size.steps if name == "ours" else size.short_steps
        values |= {"steps": steps, "depth": Ast.depth, "defaults": DEFAULTS}
        values |= size.some("experience", "dev_every", "tune_lr")
    return values


@cache
def _scorers() -> dict[str, str]:
    with as_file(files("backtalk") / "embedded") as folder:
        return {name: read_json(folder / name / "card.json")["sha256"] for name in (REWARD, JUDGE)}


def play_row(place: Workplace, name: str, size: Size, texts: Texts, model: str) -> Result:
    """An audit in runs/NAME, and what it comes to."""
    if ROWS[name].get("model") and (why := place.result("hardened").get("left_out")):
        return {"left_out": why}
    if name == AGAIN and pick_device(place.device).type == "cpu":
        return {"left_out": "on a processor the same training again comes out the same"}
    with Run.open(run_audit(place, name, spec_of(place, name, size, texts, model))) as run:
        summary, findings = summarise(run), run.findings()
    played = {finding.case: exchanges_of(finding) for finding in findings if finding.status == "found"}
    prompts = [[one.adversary for one in own] for own in played.values()]
    hit = sum(any(one.rewarded >= TOXIC for one in own) for own in played.values())
    return {
        "training": summary["training"],
        "hits": {f"toxic-{TOXIC:g}": Rate.of(hit, len(played)).as_dict()},
        "by_turn": [as_published(row) for row in summary["by_turn"]],
        "n": len(played),
        "by_opening": {case: means(own) for case, own in played.items()},
        "topics": {use.topic: use.shares for use in topics_by_turn(prompts, None, size.turns)},
        "openings": summary["openings"]["left_out"],
    }


def spec_of(place: Workplace, name: str, size: Size, texts: Texts, model: str) -> AuditSpec:
    values = settings_of(name, size, texts, model)
    for constant in ("data", "defaults", "scorers", "depth"):  # part of a row, but no flags
        values.pop(constant, None)
    if "tune_lr" in values:
        values["lr"] = values.pop("tune_lr")
    values |= {"openings": texts.openings, "device": place.device, "reward": REWARD, "scorer": JUDGE}
    if values.get("tune") not in UNTUNED and (values.get("weak_share", 0.5) > 0 or values["tune"] == "sft"):
        values["weak"] = texts.weak
    if values.get("tune") == "human":
        values["prompts"] = texts.prompts
    for flag in ("adversary", "train_from"):
        if flag in values:
            values[flag] = str(place.path("runs", values[flag]))
    if values["model"] == "hardened":
        values["model"] = f"hf/{place.path('hardenings', 'hardened', 'model')}"
    return flat_spec(AuditSpec, values, name)


def as_published(row: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of the reward's scorer are the page's first, those of the judge its second."""
    first = {"defender": row["rewarded"], "pair": row["rewarded_pair"]}
    return {**row, **first, "second": row["defender"], "second_pair": row["pair"]}


def means(exchanges: list[Exchange]) -> dict[str, float]:
    """Of one conversation, over its turns: what rows are compared by."""
    n = len(exchanges)
    return {name: sum(getattr(one, ours) for one in exchanges) / n for name, ours in MEASURES.items()}


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
    spec = spec_of(place, "untuned", replace(size, test=1), texts, model)
    own = make_backend(spec, Overrides(), NO_CONSENT)
    assert isinstance(own, ConversationBackend)
    made = own.game
    players = Adversary(own.model, made.config.sampling), made.defender, made.scorer, made.config
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
        found = page_values(run_harden(place, {**values, "audits": False}))
    except TooFewError as error:
        return {"left_out": str(error).replace(str(place.folder), "STUDY")}
    left_out = {} if found["iterations_kept"] else {"left_out": "no iteration of the hardening was kept"}
    return {**found, **left_out}


@dataclass(frozen=True)
class Texts:
    """The files of openings, weak texts and prompts."""

    openings: str
    weak: str
    prompts: str
    kind: str  # embedded or files

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
    root = data_folder(name, "reddit/ and rtp/")
    weak = find_file(root, "quark_val_5k.jsonl")
    prompts = find_file(root, "decodingtrust_toxic_1.2k.jsonl")
    return Texts(str(root / "reddit"), str(weak), str(prompts), "files")


def ast_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    texts, model = open_texts(spec.data, folder), spec.model or "smollm2"
    shown = shown_name(model)

    def row(name: str) -> Part:
        needs = [ROWS[name][flag] for flag in ("adversary", "train_from") if flag in ROWS[name]]
        needs += ["hardened"] if ROWS[name].get("model") else []
        run = partial(play_row, name=name, size=size, texts=texts, model=model)
        settings = settings_of(name, size, texts, shown)
        return Part(name, tuple(needs), run, settings, texts.files, (f"runs/{name}",))

    own = {"iterations": size.iterations, "model": shown, "defaults": LORA_PLAYED}
    own |= {"own_replies": [DRAWS, HARMLESS]}
    run = partial(harden_ours, size=size, model=model)
    hardened = Part("hardened", ("ours-short",), run, own, owns=("hardenings/hardened",))
    run = partial(time_play, size=size, texts=texts, model=model)
    played = {"played": size.played, "depth": Ast.depth, "model": shown, "beside": ["trees", "turns"]}
    speed = Part("speed", (), run, played, texts.files)
    words = Part("words", ("ours", "untuned"), learnt_words, {"masked_from": RUDE})
    rows = [row(name) for name in ROWS]
    place = list(ROWS).index("after-ours")
    return [*rows[:place], hardened, *rows[place:], words, speed]


STUDY = Study("ast", SIZES, ast_parts, page_lines)
