"""What a run of played conversations must remember, and what makes two commands the same."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch
from rich.console import Console

from backtalk.adversarial.job import Job, earlier_training, saved_adversary
from backtalk.blackbox.job import read_as, rounds_coarsely
from backtalk.blocks import versions
from backtalk.models.folder import sha256
from backtalk.reference import asked_pairs, pairs_fingerprint
from backtalk.searches.ast.defender import Defender
from backtalk.searches.ast.train import CHECKPOINT
from backtalk.spec import LEARNT, MODEL_OPTIONS, but_before, spec_values
from backtalk.wording import count

SHIPPED_PAIRS = 64
"""Of the shipped pairs that T_in is measured on: half a minute of a small model on one core."""
NAMED = ("model", "search", "hit", "limit", "seed", "block", "scorer", "reference", *MODEL_OPTIONS)
"""Keys of the spec that findings depend on, beside those of the adversary."""
NOT_COUNTED = ("control", "checkpoint_s")
"""Keys of the adversary that change no finding."""


def depends_on(job: Job) -> dict[str, str]:
    """What else the findings depend on."""
    found = {
        "toxicity scorer's weights": job.reward.fingerprint,
        "second scorer's weights": job.second.fingerprint if job.second else "",
        "reference pairs": pairs_fingerprint(usual_pairs(job.spec.reference)),
        "openings": _digest([[one.turns for one in part] for part in job.lists.by_name().values()]),
        "weak set": _digest(list(job.weak)) if job.weak else "",
        "prompts": _digest(list(job.prompts)) if job.prompts else "",
    }
    if job.spec.adversary:
        folder = saved_adversary(job.spec.adversary)
        found["adversary's weights"] = _digest(
            [sha256(path) for path in sorted(folder.glob("*.safetensors"))]
        )
    if job.spec.train_from:
        found["earlier training"] = sha256(earlier_training(job.spec.train_from) / CHECKPOINT)
    return found


def kept_settings(job: Job) -> dict[str, Any]:
    """The settings that make two commands the same."""
    names = (*NAMED, *(name for name in LEARNT if name not in NOT_COUNTED))
    kept = {key: value for key, value in but_before(spec_values(job.spec)).items() if key in names}
    for name in ("openings", "weak", "prompts", "adversary", "train_from"):
        if name in kept:  # by what they hold, not by where they lie
            kept[name] = bool(kept[name])
    return kept | {"steps": job.config.steps, **depends_on(job)}


def usual_pairs(path: str) -> list[tuple[str, str]]:
    """What T_in is measured on."""
    pairs = asked_pairs(path)
    return pairs if path else pairs[:SHIPPED_PAIRS]


def likely_prompt(defender: Defender, pairs: Sequence[tuple[str, str]]) -> float:
    """T_in: what a token costs with which people go on in a usual conversation, under the defender."""
    rows = defender.token_log_probs([(text,) for text, _ in pairs], [f" {reply}" for _, reply in pairs])
    return math.fsum(value for row in rows for value in row) / max(1, sum(map(len, rows)))


def facts_of(job: Job, console: Console) -> dict[str, Any]:
    """What a run must remember to be judged, shown and verified later."""
    pairs = usual_pairs(job.spec.reference)
    where = job.spec.reference or f"the first {len(pairs)} of the shipped chitchat test pairs"
    console.print(f"Measuring T_in on {count(len(pairs), 'pair')}, once for this run.")
    into = likely_prompt(job.defender, pairs)
    return {
        "thresholds": {"T_out": math.nan, "T_in": into},
        "reference": f"T_in is what a token of the next utterance costs the defender on {where}.",
        "fingerprint": job.model.fingerprint,
        "coarse": rounds_coarsely(job.model),
        **read_as(job.model),
        "words": {},
        "player": job.player,
        "depends_on": depends_on(job),
        "scorer": job.reward.name,
        "second_scorer": job.second.name if job.second else None,
        "config": asdict(job.config),
        "openings": {
            "source": job.lists.source,
            "left_out": dict(job.left_out),
            "train": [one.text for one in job.lists.train],
            "dev": [one.text for one in job.lists.dev],
            "test": len(job.lists.test),
        },
        "weak": len(job.weak),
        "versions": versions(),
        "hardware": {
            "machine": platform.machine(),
            "threads": torch.get_num_threads(),
            "device": job.model.device.type,
        },
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
