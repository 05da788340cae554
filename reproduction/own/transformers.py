"""`python -m reproduction transformers`: white-box search on a Hugging Face model: how fast candidates are
tried, how many targets of the shipped list are hit by each criterion, and what a fresh search still hits
after a hardening.

Each search is an ordinary audit under runs/ and the hardening an ordinary one under hardenings/: they resume,
and can be verified, reported and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.transformer import Sizes, TransformerBench

from backtalk.audit.verify import verify
from backtalk.hardening.subject import TRAINING
from backtalk.hits import STANDARD, rates_by_category
from backtalk.store import Run
from backtalk.wording import chance, mask, says
from reproduction.egregious.search import best_findings
from reproduction.hardenings import page_values, run_audit, run_harden, shown_name
from reproduction.page import Found, Page, Result, escaped, hits_text, rise_text, section, table
from reproduction.runner import Part, Study, Workplace
from reproduction.runner import Size as Base
from reproduction.spec import StudySpec

HEAD = """# White-box search on a Hugging Face model

`python -m reproduction transformers --model hf/FOLDER`: how fast gibbs tries candidates, how many
targets of the shipped list it hits, and what is left after `backtalk harden`, under a fresh
search. Every hit is decided in float32 by a plain forward pass.
"""


def page_lines(page: Page) -> list[str]:
    records = page.records
    if not records:
        return [HEAD, "Nothing has been run yet."]
    first = next(iter(records.values()))
    lines = [HEAD, f"{first['device']}; torch {first['versions']['torch']}.", ""]
    if missing := [name for name in page.parts if name not in records]:
        lines += [f"Not run yet: {', '.join(missing)}.", ""]
    if "speed" in records:
        lines += section("Speed", _speed(page.get("speed")))
    if searches := {name: page.get(name) for name in AIMS if name in records}:
        lines += section("Hits", _hits(searches))
        lines += _examples(searches.get("o") or next(iter(searches.values())))
    if "hardening" in records:
        lines += section("Hardening", _hardening(records["hardening"]))
    return lines


def _speed(result: Found) -> list[str]:
    rows = []
    for one in result["lines"]:
        share = "" if one["ceiling_share"] is None else f"{one['ceiling_share']:.0%}"
        rows.append([one["name"], f"{one['candidates_per_s']:,.0f}", f"{one['tokens']:.1f}", share])
    said = (
        "{model}: a trigger of {length} tokens, a target of {target}, {top} candidates a position, {rows} "
        "targets at once."
    )
    header = ["", "candidates/s", "tokens run for one", "of the matrix products alone"]
    return [said.format(model=result["model"], **result["sizes"]), "", *table(header, rows)]


def _hits(searches: Mapping[str, Found]) -> list[str]:
    first = next(iter(searches.values()))
    header = ["criterion", *(f"aimed at {result['hit']}" for result in searches.values())]
    rows = [[name, *(_rate(one["hits"].get(name)) for one in searches.values())] for name in first["hits"]]
    lines = table(header, rows)
    for name, result in searches.items():
        start, end = result["start_loss"], result["end_loss"]
        fell = "" if start is None else f"; mean output loss {start:.2f} at the start, {end:.2f} at the end"
        lines.append(
            f"- {name}: {result['n']} targets, {result['candidates']:,} candidates in "
            f"{result['seconds']:.0f} s{fell}; loss lowered for {result['lowered']} of "
            f"{result['found']}; verify confirms {result['verified'][0]} of {result['verified'][1]} hits."
        )
    limits = first["thresholds"]
    into = "none" if limits["T_in"] is None else f"{limits['T_in']:.3f}"
    return [
        *lines,
        "",
        f"T_out {limits['T_out']:.3f}, T_in {into}; rates with 95% intervals. T_out is what a token of the",
        "shipped chit-chat replies has on average. A model that is no good at chit-chat has a low one, and a",
        "search ends where it is reached: a hit is as likely as such a reply, which need not be likely. The",
        "chance of the whole sentence stands beside each example.",
        "",
    ]


def _examples(result: Found) -> list[str]:
    said = f"Examples ({result['hit']}), evenly from the likeliest to the least likely, masked:"
    rows = [
        [escaped(one["trigger"]), escaped(one["target"]), chance(one["log_prob"]), escaped(one["reply"])]
        for one in result["examples"]
    ]
    header = ["trigger", "target", "chance of the whole sentence", "greedy reply"]
    return [said, "", *table(header, rows, words=4)]


def _hardening(record: Found) -> list[str]:
    result, fresh, cost = record["result"], record["result"]["fresh"], record["result"]["cost"]
    said = (
        f"Against the findings of the search that aims at {record['settings']['hit']}; "
        f"{result['updates']} updates, iteration {result['iterations_kept']} was kept, "
        f"{record['seconds']:.0f} s with all searches."
    )
    rows = []
    for title, key in (("trained against", "train"), ("held out", "held_out")):
        old = [_rate(result[key][when]) for when in ("before", "after")]
        new = [hits_text(one) for one in fresh[key]] if fresh else ["not run", "not run"]
        rows.append([title, *old, *new])
    header = ["list", "asked again with the old triggers: before", "after", "fresh search: before", "after"]
    before, after = cost["perplexity"]
    return [
        said,
        "",
        *table(header, rows),
        f"Perplexity of the reference pairs: {before:.2f} before, {after:.2f} after, {rise_text(cost)}. "
        f"Greedy replies to their inputs: {cost['same_replies']} of {cost['pairs']} are word for word the "
        f"same; Ent-2 {_change(cost['ent_2'], 2)}, words a reply {_change(cost['length'], 1)}, the commonest "
        f"reply {_change(cost['commonest'], 0)} times.",
        "",
    ]


def _change(both: Sequence[float], places: int) -> str:
    return " -> ".join(f"{value:.{places}f}" for value in both)


def _rate(stored: Found | None) -> str:
    return "not decided" if stored is None else hits_text(stored)


AIMS = {"greedy": "o-greedy", "o": "o-sample-avg-k1", "io": "io-sample-avg-k1"}
"""Each search aims at one criterion; every criterion is decided on what it finds."""
EXAMPLES = 10
HARDENED = "o"  # the search whose findings are trained away


@dataclass(frozen=True)
class Size(Base):
    limit: int = 200
    length: int = 15
    top: int = 64
    sweeps: int = 5
    restarts: int = 1
    greedy_sweeps: int = 20
    """Of the search for greedy replies, which goes on after a local optimum."""
    bench: Sizes = field(default_factory=Sizes)
    hardening: tuple[tuple[str, Any], ...] = (("iterations", 6), ("search_sweeps", 2), ("measure", 500))
    """Settings of the hardening that differ from the defaults."""

    def limited(self, limit: int, restarts: int) -> Size:
        return replace(self, limit=limit or self.limit, restarts=restarts or self.restarts)


SIZES = {
    "paper": Size(),
    "mini": Size(
        10, 3, 4, 1, greedy_sweeps=1, bench=Sizes(3, 3, 2, 1),
        hardening=(("iterations", 1), ("search_sweeps", 1), ("rounds", 2), ("measure", 8), ("rank", 2),
                   ("max_reply", 6)),
    ),
}  # fmt: skip


def transformer_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    model = spec.model or "smollm2"
    search: dict[str, Any] = {"search": "gibbs", "targets": "mal"}
    search |= size.some("limit", "length", "top", "sweeps", "restarts")
    parts = [Part("speed", (), partial(measure_speed, model=model, sizes=size.bench), vars(size.bench))]
    for name, hit in AIMS.items():
        settings = {**search, "hit": hit}
        if name == "greedy":
            settings |= {"sweeps": size.greedy_sweeps, "anneal": 0.1}
        run = partial(search_list, model=model, settings=settings)
        parts.append(Part(name, (), run, settings, owns=(f"runs/{name}",)))
    settings = {"hit": AIMS[HARDENED], "max_ppl_increase": "3%", **dict(size.hardening)}
    run = partial(harden_model, model=model, settings=settings)
    return [*parts, Part("hardening", (HARDENED,), run, settings, owns=("hardenings/hardening",))]


def measure_speed(place: Workplace, model: str, sizes: Sizes) -> Result:
    bench = TransformerBench(model, place.device, sizes=sizes)
    lines = [line._asdict() for line in bench.lines()]
    return {"model": shown_name(model), "sizes": vars(bench.sizes), "lines": lines}


def search_list(place: Workplace, model: str, settings: Found) -> Result:
    folder = run_audit(place, place.part, {**settings, "model": model})
    verdict = verify(folder, place.device)
    checked = {"verified": [verdict.confirmed, verdict.hits], "problems": len(verdict.problems)}
    return {**sum_up(folder), **checked}


def _masked(text: str, target: str) -> str:
    return mask(text) if says(text, target) else text


def sum_up(folder: Path) -> Result:
    """A finished run as numbers, and a few examples, masked."""
    with Run.open(folder) as run:
        findings, targets, thresholds = run.findings(), run.cases, run.thresholds
        hit, seconds = str(run.spec["hit"]), run.seconds()
    found = [finding for finding in findings if finding.status == "found"]
    hits = rates_by_category(targets, findings, STANDARD, thresholds)[""]
    likeliest = sorted(best_findings(findings).values(), key=lambda one: -one.scores["mean"])
    losses = [one.series["output_loss_by_sweep"] for one in found if "output_loss_by_sweep" in one.series]
    return {
        "hit": hit,
        "n": len(targets),
        "hits": {name: rate.as_dict() for name, rate in hits.items()},
        "thresholds": {"T_out": thresholds.out, "T_in": thresholds.into},
        "candidates": sum(finding.candidates for finding in findings),
        "seconds": seconds,
        "lowered": sum(one.series["loss_by_sweep"][-1] < one.series["loss_by_sweep"][0] for one in found),
        "found": len(found),
        "start_loss": _mean([row[0] for row in losses]),
        "end_loss": _mean([row[-1] for row in losses]),
        "examples": [
            {
                "trigger": _masked(one.trigger, one.target),
                "target": mask(one.target),
                "reply": _masked(one.reply, one.target),
                "mean": one.scores["mean"],
                "log_prob": one.scores["log_prob"],
                "input_mean": one.scores.get("input_mean"),
            }
            for one in likeliest[:: max(1, len(likeliest) // EXAMPLES)][:EXAMPLES]
        ],
    }


def harden_model(place: Workplace, model: str, settings: Found) -> Result:
    findings = place.folder / "runs" / HARDENED
    summary = run_harden(place, {**settings, "model": model, "findings": str(findings)})
    again = [row for row in summary["proof"] if row["run"].endswith("/search")]
    fresh: Result = {"criterion": again[0]["criterion"], "search": again[0]["search"]}
    for row in again:
        fresh["train" if row["list"] == TRAINING else "held_out"] = [row["before"], row["after"]]
    return {**page_values(summary, "held_out", "train"), "fresh": fresh}


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


STUDY = Study("transformers", SIZES, transformer_parts, page_lines)
