"""A hardening as a part of a study: an ordinary one, in a folder of its own, its lines in a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from backtalk.harden import harden
from backtalk.hardening.folder import SUMMARY
from backtalk.hardening.shared import Shared
from backtalk.spec import HardenSpec, build_spec
from backtalk.studies.parts import Result, Workplace

TEXTS = ("side_by_side", "most_said", "real_most_said")
"""Of a cost: what holds words of a corpus."""


def run_harden(place: Workplace, values: Mapping[str, Any]) -> Result:
    """An ordinary hardening in hardenings/PART; returns its summary. What the hardenings of a study work out
    alike is in its folder shared/."""
    folder = place.path("hardenings", place.part)
    spec = build_spec(HardenSpec, {**values, "out": str(folder), "device": place.device}, place.part)
    log = place.path("log", f"{place.part}.txt").open("a", encoding="utf-8")
    with log, redirect_stdout(log), redirect_stderr(log):  # the study tells of parts only
        harden(spec, shared=Shared(place.path("shared")))
    summary: Result = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return summary


def told(summary: Mapping[str, Any]) -> Result:
    """What the page needs of a hardening: numbers, and no word of a corpus."""
    hardening = summary["hardening"]
    return {
        "cost": {key: value for key, value in summary["cost"].items() if key not in TEXTS},
        "candidates": hardening["candidates"],
        "iterations_kept": hardening["iterations_kept"],
        "updates": hardening["updates"],
    }
