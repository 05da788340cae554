"""`python -m reproduction transformers`: white-box search on a Hugging Face model: how fast candidates are
tried, how many targets of the shipped list are hit by each criterion, and what a fresh search still hits
after a hardening.

Each search is an ordinary audit under runs/ and the hardening an ordinary one under hardenings/: they resume,
and can be verified, reported and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.transformer import Sizes, TransformerBench

from backtalk.audit.flow import audit
from backtalk.audit.verify import verify
from backtalk.hardening.proof import TRAINING
from backtalk.hits import STANDARD, best_findings, rates
from backtalk.report.progress import shown
from backtalk.runs.summary import thresholds_of
from backtalk.specs.audit import flat_spec
from backtalk.store import Run
from backtalk.wording import mask, mask_like
from reproduction.hardenings import run_harden, told
from reproduction.parts import Part, Result, Workplace, claim_folder
from reproduction.spec import StudySpec
from reproduction.telling import run_and_tell
from reproduction.transformers.page import write_page

AIMS = {"greedy": "o-greedy", "o": "o-sample-avg-k1", "io": "io-sample-avg-k1"}
"""Each search aims at one criterion; every criterion is decided on what it finds."""
EXAMPLES = 10
HARDENED = "o"
"""The search whose findings are trained away."""


@dataclass(frozen=True)
class Size:
    """Of the searches and the hardening."""

    limit: int = 200
    length: int = 15
    top: int = 64
    sweeps: int = 5
    restarts: int = 1
    bench: Sizes = field(default_factory=Sizes)
    hardening: tuple[tuple[str, Any], ...] = (
        ("iterations", 6), ("search_sweeps", 2), ("measure", 500),
    )  # fmt: skip
    """What is set over the defaults of `harden`."""


SIZES = {
    "paper": Size(),
    "small": Size(
        10, top=8, sweeps=1, bench=Sizes(15, 8, 8, 1),
        hardening=(("iterations", 1), ("search_sweeps", 1), ("rounds", 4), ("measure", 20), ("batch", 8)),
    ),
    "mini": Size(
        10, 3, 4, 1, bench=Sizes(3, 3, 2, 1),
        hardening=(("iterations", 1), ("search_sweeps", 1), ("rounds", 2), ("measure", 8), ("rank", 2),
                   ("max_reply", 6)),
    ),
}  # fmt: skip


def run_study(spec: StudySpec) -> int:
    claim_folder(Path(spec.out))
    parts = transformer_parts(SIZES[spec.size], spec.model or "smollm2", spec.limit, spec.restarts)
    return run_and_tell(parts, spec, "transformers", write_page)


def transformer_parts(size: Size, model: str, limit: int = 0, restarts: int = 0) -> list[Part]:
    search = {
        "search": "gibbs",
        "targets": "mal",
        "limit": limit or size.limit,
        "length": size.length,
        "top": size.top,
        "sweeps": size.sweeps,
        "restarts": restarts or size.restarts,
    }
    parts = [
        Part("speed", (), partial(measure_speed, model=model, sizes=size.bench), vars(size.bench), alone=True)
    ]
    for name, hit in AIMS.items():
        settings = {**search, "hit": hit}
        run = partial(search_list, model=model, settings=settings)
        parts.append(Part(name, (), run, settings, owns=(f"runs/{name}",)))
    settings = {"hit": AIMS[HARDENED], "max_ppl_increase": "3%", **dict(size.hardening)}
    run = partial(harden_model, model=model, settings=settings)
    return [*parts, Part("hardening", (HARDENED,), run, settings, owns=("hardenings/hardening",))]


def measure_speed(place: Workplace, model: str, sizes: Sizes) -> Result:
    bench = TransformerBench(model, place.device, sizes=sizes)
    lines = [line._asdict() for line in bench.lines()]
    return {"model": shown_name(model), "sizes": vars(bench.sizes), "lines": lines}


def search_list(place: Workplace, model: str, settings: Mapping[str, Any]) -> Result:
    folder = place.path("runs", place.part)
    values = {**settings, "model": model, "device": place.device}
    with place.log(place.part) as consoles, shown(consoles.err) as tell:
        audit(flat_spec(values, place.part), str(folder), progress=tell)
    verdict = verify(folder, place.device)
    return {
        **sum_up(folder),
        "verified": [verdict.confirmed, verdict.hits],
        "problems": len(verdict.problems),
    }


def sum_up(folder: Path) -> Result:
    """A finished run as numbers, and a few examples, masked."""
    with Run.open(folder) as run:
        findings, targets, thresholds = run.findings(), run.cases, thresholds_of(run)
        hit, seconds = str(run.spec["hit"]), run.seconds()
    found = [finding for finding in findings if finding.status == "found"]
    hits = rates(targets, findings, STANDARD, thresholds)
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
                "trigger": mask_like(one.trigger, one.target),
                "target": mask(one.target),
                "reply": mask_like(one.reply, one.target),
                "mean": one.scores["mean"],
                "log_prob": one.scores["log_prob"],
                "input_mean": one.scores.get("input_mean"),
            }
            for one in likeliest[:: max(1, len(likeliest) // EXAMPLES)][:EXAMPLES]
        ],
    }


def harden_model(place: Workplace, model: str, settings: Mapping[str, Any]) -> Result:
    findings = place.folder / "runs" / HARDENED
    summary = run_harden(place, {**settings, "model": model, "findings": str(findings)})
    again = [row for row in summary["proof"] if row["run"].endswith("/search")]
    fresh: Result = {"criterion": again[0]["criterion"], "search": again[0]["search"]}
    for row in again:
        fresh["train" if row["list"] == TRAINING else "held_out"] = [row["before"], row["after"]]
    return {**{key: summary[key] for key in ("held_out", "train")}, "fresh": fresh, **told(summary)}


def shown_name(model: str) -> str:
    """Never a path of one machine."""
    return f"hf/{Path(model).name}" if "/" in model else model


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
