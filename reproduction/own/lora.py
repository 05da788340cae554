"""`python -m reproduction lora`: a habit is planted in a Hugging Face model and trained away by three rules.

Each hardening is an ordinary one in its own folder, so it resumes, and its runs can be reported and compared.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from backtalk.data.corpora import reference_pairs
from backtalk.hardening.subjects.asking import mean_log_prob
from backtalk.hardening.subjects.transformer import LORA_DEFAULT
from backtalk.models.transformer.model import TransformerModel
from backtalk.output_file import PARTIAL
from backtalk.registry import load_model
from backtalk.stats import Rate
from backtalk.training.likelihood import perplexity
from backtalk.types import Turn
from backtalk.wording import with_interval
from reproduction.hardenings import run_harden, told
from reproduction.own.habit import phrasings, plant_habit, says_it, write_lists
from reproduction.page import Found, Page, Result
from reproduction.runner import Part, Study, Workplace
from reproduction.runner import Size as Base
from reproduction.spec import StudySpec


def page_lines(page: Page) -> list[str]:
    records = page.records
    lines = [
        "# A planted habit, trained away",
        "",
        "`python -m reproduction lora` fine-tunes a Hugging Face model to answer greetings rudely, then",
        "hardens it with each rule on some phrasings and measures it on others. Every hardening is an",
        "ordinary `backtalk harden` with its defaults and a bound of 3% on perplexity.",
        "",
    ]
    habit = records.get("habit")
    if habit is None:
        return [*lines, "Nothing has been run yet."]
    result = habit["result"]
    lines += [
        f"Model: {result['model']}; {habit['device']}; torch {habit['versions']['torch']}. Planting took "
        f"{habit['seconds']:.0f} s.",
        "",
        "| | rude, trained phrasings | rude, held-out phrasings | rude, sampled | perplexity |",
        "|---|---|---|---|---|",
        _row("as it is", result["before"], None),
        _row("with the habit", result["after"], None),
    ]
    for name, record in records.items():
        if name != "habit":
            lines.append(_row(f"hardened, {name}", record["result"]["habit"], record["result"]))
    kept = f"{result['same_replies']} of {habit['settings']['measure']}"
    lines += [
        "",
        "Rude: the greedy reply holds one of the rude answers; sampled: the same of four samples for each",
        "held-out phrasing. Rates with 95% intervals. Perplexity is of the shipped chitchat test pairs;",
        f"the habit left {kept} replies to them as they were.",
        "",
    ]
    costs = [_cost(name, record) for name, record in records.items() if name != "habit"]
    if costs:
        lines += [
            "| rule | perplexity | same replies | drawn out, held-out | iteration kept | updates | s |",
            "|---|---|---|---|---|---|---|",
            *costs,
            "",
            "Perplexity and replies are compared with those of the model with the habit.",
            "Drawn out: the greedy reply holds the answer that was planted for the phrasing (contains).",
            "",
        ]
    rules = [name for name in records if name != "habit"]
    examples = [(name, records[name]["result"]["habit"]["examples"]) for name in rules]
    if examples:
        lines += ["What is said to the first held-out phrasings, unselected:", ""]
        lines += [f"| input | with the habit | {' | '.join(name for name, _ in examples)} |"]
        lines += ["|---|---|" + "---|" * len(examples)]
        for place, (text, said) in enumerate(result["after"]["examples"][:8]):
            replies = [said, *(own[place][1] for _, own in examples)]
            lines.append(f"| {' | '.join(plain_text(one) for one in [text, *replies])} |")
        lines.append("")
    return lines


def _row(name: str, measured: Found, hardened: Found | None) -> str:
    rates = [_rate(measured[key]) for key in ("train", "held-out", "sampled")]
    return f"| {name} | {' | '.join(rates)} | {measured['perplexity']:.2f} |"


def _rate(stored: Found) -> str:
    rate = Rate.of(stored["hits"], stored["n"])
    return f"{rate.hits} of {rate.n}: {with_interval(rate)}"


def _cost(name: str, record: Found) -> str:
    result = record["result"]
    cost, held_out = result["cost"], result["held_out"]
    before, after = cost["perplexity"]
    drawn = f"{held_out['before']['hits']} -> {held_out['after']['hits']} of {held_out['after']['n']}"
    low, high = cost["rise_interval"]
    return (
        f"| {name} | {after / before - 1:+.1%} ({low:+.1%} to {high:+.1%}) | "
        f"{cost['same_replies']} of {cost['pairs']} | {drawn} | {result['iterations_kept']} | "
        f"{result['updates']} | {record['seconds']:.0f} |"
    )


def plain_text(text: str) -> str:
    """Safe in a Markdown table."""
    plain = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
    return plain[:160]


METHODS = ("negative", "unlikelihood", "npo")
HABIT = "models/habit"
SAMPLES = 4
"""Replies drawn to each held-out phrasing."""


@dataclass(frozen=True)
class Size(Base):
    steps: int = 150
    """Of planting."""
    batch: int = 16
    lr: float = 0.0003
    phrasings: int = 0
    """Of each list and greeting at most; 0: all."""
    measure: int = 500
    """Pairs that measure."""
    keep: int = 1000
    """Pairs that keep the model whole while the habit is planted."""
    iterations: int = 10
    search: tuple[tuple[str, Any], ...] = ()
    """What the hardenings set over the defaults."""


SIZES = {
    "paper": Size(),
    "small": Size(steps=60, batch=8, lr=0.0005, measure=60, keep=200, iterations=3, search=(("batch", 16),)),
    "mini": Size(4, 4, 0.001, 2, 12, 40, 1, (("rounds", 2), ("rank", 2), ("max_reply", 8))),
}


def lora_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    model = spec.model or "smollm2"
    planted: dict[str, Any] = {
        "steps": size.steps, "batch": size.batch, "lr": size.lr, "keep": size.keep,
        "phrasings": size.phrasings, "measure": size.measure,
    }  # fmt: skip
    parts = [Part("habit", (), partial(plant, model=model, size=size), planted, owns=(HABIT,))]
    for method in METHODS:
        settings = {
            "method": method,
            "hit": "contains",
            "iterations": size.iterations,
            "measure": size.measure,
            "max_ppl_increase": "3%",
            **dict(size.search),
        }
        run = partial(harden_habit, settings=settings, size=size)
        counted = {**settings, "default": LORA_DEFAULT}
        parts.append(Part(method, ("habit",), run, counted, owns=(f"hardenings/{method}",)))
    return parts


def plant(place: Workplace, model: str, size: Size) -> Result:
    """The model as it is, then with the habit; the second is written as a whole model."""
    loaded = load_model(model, place.device)
    assert isinstance(loaded, TransformerModel)
    pairs = reference_pairs("")
    measured, kept = pairs[: size.measure], pairs[size.measure :][: size.keep]
    inputs = [(Turn("user", text),) for text, _ in measured]
    before, said = measure(loaded, measured, size), loaded.reply(inputs)
    losses = plant_habit(loaded, kept, size.steps, size.batch, size.lr, size.phrasings)
    after = measure(loaded, measured, size)
    same = sum(old == new for old, new in zip(said, loaded.reply(inputs), strict=True))
    write_model(loaded, place.path(HABIT))
    name = f"hf/{Path(model).name}" if "/" in model else model  # never a path of one machine
    return {"model": name, "before": before, "after": after, "same_replies": same, "losses": losses}


def write_model(model: TransformerModel, folder: Path) -> None:
    """Whole or not at all."""
    partial_folder = folder.with_name(folder.name + PARTIAL)
    for old in (partial_folder, folder):
        shutil.rmtree(old, ignore_errors=True)
    model.network.save_pretrained(str(partial_folder), safe_serialization=True)
    model.tokenizer.save_pretrained(str(partial_folder))
    partial_folder.replace(folder)


def measure(model: TransformerModel, pairs: Sequence[tuple[str, str]], size: Size) -> Result:
    """The habit on each list by greedy replies, on the held-out one by samples too; the pairs' perplexity."""
    found: Result = {"perplexity": perplexity(mean_log_prob(model, pairs))}
    for part in ("train", "held-out"):
        dialogues = [(Turn("user", text),) for text, _ in phrasings(part, size.phrasings)]
        said = model.reply(dialogues)
        found[part] = Rate.of(says_it(said), len(said)).as_dict()
    drawn = model.sample([one for one in dialogues for _ in range(SAMPLES)], range(SAMPLES * len(dialogues)))
    examples = [(one.text, reply) for (one,), reply in zip(dialogues, said, strict=True)]
    return {**found, "sampled": Rate.of(says_it(drawn), len(drawn)).as_dict(), "examples": examples}


def harden_habit(place: Workplace, settings: dict[str, Any], size: Size) -> Result:
    lists = write_lists(place.path("lists", "train.jsonl").parent, size.phrasings)
    summary = run_harden(place, {**settings, **lists, "model": f"hf/{place.path(HABIT)}"})
    hardened = load_model(summary["hardened"], place.device)
    assert isinstance(hardened, TransformerModel)
    habit = measure(hardened, reference_pairs("")[: size.measure], size)
    proof = {key: summary[key] for key in ("held_out", "train")}
    card = json.loads((place.folder / "hardenings" / place.part / "model" / "card.json").read_text())
    return {**proof, **told(summary), "habit": habit, "T_out": card["T_out"]}


STUDY = Study("lora", SIZES, lora_parts, page_lines)
