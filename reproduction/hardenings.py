"""Hardenings and audits as parts of a study: ordinary ones, in folders of their own, with their lines in a
log, so they resume and can be verified."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backtalk.audit.flow import audit
from backtalk.hardening.flow import harden
from backtalk.hardening.subjects.lstm import DEFAULT
from backtalk.registry import is_transformer
from backtalk.report.comparison_console import print_hardening
from backtalk.report.progress import Shown
from backtalk.specs import flat_spec
from backtalk.specs.audit import AuditSpec
from backtalk.specs.harden import HardenSpec
from reproduction.page import Result
from reproduction.runner import Workplace

TEXTS = ("side_by_side", "most_said", "real_most_said")  # the fields of a cost that hold text of a corpus
_PUBLISHED: dict[str, Any] = {
    "optimizer": "sgd", "lr": 0.01, "kl": 0.0, "batch": 100, "positive_batch": 100, "margin": 0.0,
    "rounds": 20, "repairs": 0, "avoid": "paper", "together": False, "mean_over": "words",
    "triggers": "best", "escalate": 0,
}  # fmt: skip
PAPER_SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "ubuntu": {**_PUBLISHED, "lambda_pos": 0.1},
    "switchboard": {**_PUBLISHED, "lambda_pos": 1.0},
    "opensubtitles": {**_PUBLISHED, "lambda_pos": 1.0},
}
"""Section 4.2 of He & Glass 2020; 20 iterations in mini-batches of 100 throughout. That losses are means over
words is only in the public code, whose learning rates are others for Ubuntu and OpenSubtitles."""


def harden_spec(values: Mapping[str, Any], source: str = "") -> HardenSpec:
    """The spec of flat settings, of which `settings` names the paper's for a corpus."""
    rest = {name: value for name, value in values.items() if name != "settings"}
    return flat_spec(HardenSpec, {**PAPER_SETTINGS[values.get("settings", "default")], **rest}, source)


def run_audit(
    place: Workplace, name: str, values: Mapping[str, Any] | AuditSpec, fresh: bool = False
) -> Path:
    """An ordinary audit in runs/NAME; returns its folder."""
    folder, spec = place.path("runs", name), values
    with place.log(name) as (_, err), Shown(err) as tell:
        if not isinstance(spec, AuditSpec):
            spec = flat_spec(AuditSpec, {**spec, "device": place.device}, name)
        audit(spec, str(folder), fresh=fresh, progress=tell)
    return folder


def defaults_left(given: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of training that these settings do not set."""
    defaults = {**DEFAULT, "avoid": "none"}
    return {name: value for name, value in defaults.items() if given.get(name) in (None, "", 0)}


def run_harden(place: Workplace, values: Mapping[str, Any], adapts: bool = False) -> Result:
    """An ordinary hardening in hardenings/PART; returns its summary. Unless it `adapts`, its search and KL
    weight stay fixed, so that the rows of a table differ in nothing but their settings."""
    folder = place.path("hardenings", place.part)
    fixed = {} if adapts else _fixed(values)
    spec = harden_spec({**fixed, **values, "out": str(folder), "device": place.device}, place.part)
    with place.log(place.part) as (out, err), Shown(err) as tell:
        done = harden(spec, progress=tell)
        print_hardening(done.record, out, pages=done.pages)
    return dict(done.record)


def _fixed(values: Mapping[str, Any]) -> dict[str, Any]:
    bound = {} if values.get("keep") == "last" else {"max_ppl_increase": "5%"}
    if values.get("against") == "frequent" or values.get("settings", "default") != "default":
        return bound
    return {**bound, "escalate": 0, "kl": "100" if is_transformer(values["model"]) else "10"}


def page_values(summary: Mapping[str, Any], *proofs: str) -> Result:
    """The numbers of a hardening and of `proofs` that a page needs, without any text of a corpus."""
    found = {key: summary[key] for key in proofs}
    found["cost"] = {key: value for key, value in summary["cost"].items() if key not in TEXTS}
    return found | {key: summary["hardening"][key] for key in ("candidates", "iterations_kept", "updates")}


def shown_name(model: str) -> str:
    """A model's name without the path of one machine."""
    return f"hf/{Path(model).name}" if "/" in model else model
