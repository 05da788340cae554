"""Verifies a risk estimate: loads the model again and recomputes every draw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from backtalk.audit.backend import Overrides
from backtalk.audit.consent import NO_CONSENT, Consent
from backtalk.audit.verify import COARSE, TOLERANCE, Verdict
from backtalk.risk.flow import check_same, make_measure, stored_spec
from backtalk.risk.measure import Measure
from backtalk.store import Run
from backtalk.store.draws import Block, StoredDraws


def verify_risk(
    folder: Path,
    device: str = "auto",
    typed: str = "",
    overrides: Overrides | None = None,
    consent: Consent = NO_CONSENT,
) -> Verdict:
    """The draws and their risks, from the seed, the inputs and the model. `hits` are blocks with a risk."""
    with Run.open(folder, verb="risk") as run:
        spec = replace(stored_spec(run, typed), device=device)
        measure = make_measure(spec, overrides or Overrides(), consent, run)
        check_same(run, measure)
        measure.prepare(folder, lambda line: None)
        tolerance = COARSE if run.facts.get("dtype") in ("float16", "bfloat16") else TOLERANCE
        draws, risky, right, problems = 0, 0, 0, list[str]()
        for number, block in enumerate(StoredDraws(run).blocks()):
            wrong = differences(block, measure, tolerance)
            draws, risky = draws + block.draws, risky + bool(block.arrays["chance"].any())
            right += bool(block.arrays["chance"].any() and not wrong)
            problems += [f"block {number}: {what}" for what in wrong]
    return Verdict(draws, risky, right, problems, [], "draws recomputed")


def differences(stored: Block, measure: Measure, tolerance: float) -> list[str]:
    again = measure.block(stored.first, stored.first + stored.draws)
    names = sorted(stored.arrays.keys() | again.arrays.keys())
    return [
        f"{name} can't be reproduced"
        for name in names
        if name not in stored.arrays
        or name not in again.arrays
        or stored.arrays[name].shape != again.arrays[name].shape
        or not np.allclose(stored.arrays[name], again.arrays[name], rtol=tolerance, atol=1e-300)
    ]
