"""A run of many findings, made without a model: for what has to stay quick."""

from __future__ import annotations

from pathlib import Path

from backtalk.specs import spec_values
from backtalk.specs.audit import AuditSpec
from backtalk.store import Run, identity_of
from backtalk.types import Target
from tests.report.samples import THRESHOLDS, finding

SENTENCE = "you are so very boring and nobody wants to hear what you have to say today my friend"
WORDS = SENTENCE.split()
BLOCK = 1000


def sentence(i: int) -> str:
    return f"{' '.join(WORDS[i % 9 : i % 9 + 5])} {i}"


def trigger(i: int) -> str:
    return f"{' '.join(WORDS[i % 7 : i % 7 + 8])} {i}"


def make_run(folder: Path, cases: int) -> None:
    """Of `cases` sentences in 12 categories, each with one finding; every ninth is hit."""
    targets = [Target(f"c{i}", sentence(i), f"kind {i % 12}", 1 + i % 3) for i in range(cases)]
    facts = {
        "thresholds": {"T_out": THRESHOLDS.out, "T_in": THRESHOLDS.into},
        "reference": "T_out and T_in are made up.",
        "fingerprint": "none",
        "words": {},
        "versions": {"backtalk": "0"},
        "hardware": {"device": "cpu"},
    }
    spec = {**spec_values(AuditSpec()), "hit": "io-sample-avg-k1"}
    with Run.create(folder, spec, facts, targets, identity_of(spec, "none", targets), BLOCK) as run:
        for block in range(run.blocks):
            own = range(block * BLOCK, min(cases, (block + 1) * BLOCK))
            run.commit_block(
                block,
                [
                    finding(
                        targets[i],
                        tokens=[-(2.5 if i % 9 == 0 else 3.5) - (i * 7919 % 1000) / 2000] * 7,
                        into=-3.0 - (i * 104729 % 1000) / 700,
                        trigger=trigger(i),
                        seed=i,
                    )
                    for i in own
                ],
                seconds=1.0,
            )
        run.set_state("finished")
