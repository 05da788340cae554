"""A hardening as a part of a study: an ordinary one, in a folder of its own, its lines in a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from backtalk.harden import harden
from backtalk.hardening.folder import SUMMARY
from backtalk.hardening.shared import Shared
from backtalk.specs.harden import flat_spec
from backtalk.studies.parts import Result, Workplace

TEXTS = ("side_by_side", "most_said", "real_most_said")
"""Of a cost: what holds words of a corpus."""


def run_harden(place: Workplace, values: Mapping[str, Any]) -> Result:
    """An ordinary hardening in hardenings/PART; returns its summary. What the hardenings of a study work out
    alike is in its folder shared/."""
    folder = place.path("hardenings", place.part)
    spec = flat_spec({**values, "out": str(folder), "device": place.device}, place.part)
    with place.log(place.part) as consoles:
        harden(spec, shared=Shared(place.path("shared")), consoles=consoles)
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
