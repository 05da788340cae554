"""How long an audit by a learnt adversary takes on this machine, from a few timed calls."""

from __future__ import annotations

import time
from pathlib import Path

from backtalk.adversarial.attackers import trains
from backtalk.adversarial.job import Job
from backtalk.searches.ast.train import ADVERSARY as KEPT
from backtalk.store.folder import ADVERSARY
from backtalk.wording import duration

ROWS = {"cpu": 4, "cuda": 256}
"""Conversations that are timed."""
UPDATE_PASSES = 4.0
"""An update reads a pair's turns with the reference and the adversary, and backward at twice the price."""


def forecast(job: Job, folder: Path) -> str:
    """One sentence."""
    turn, read = _timed(job)
    conversations = len(job.targets) * (2 if job.spec.control and job.player != "untuned" else 1)
    playing = conversations * job.spec.turns * turn
    words = f"The conversations take about {duration(playing)}"
    if not trains(job) or (folder / ADVERSARY / KEPT).is_dir():
        return f"{words}."
    config = job.config
    epochs = max(1.0, config.steps * config.batch / config.experience)
    # A pair is two turns of both; a weak pair, one turn of the adversary alone.
    pairs = config.steps * config.batch * 2 * turn if config.loss != "sft" else 0.0
    updates = config.steps * config.batch * 2 * read * UPDATE_PASSES
    dev = (1 + epochs / config.dev_every) * len(job.lists.dev) * config.turns * turn
    return f"{words}, the training about {duration(pairs + updates + dev)}."


def _timed(job: Job) -> tuple[float, float]:
    """Seconds of one turn of both models, and of reading one turn, a row."""
    rows = ROWS[job.model.device.type]
    openings = [one.text for one in (*job.lists.dev, *job.lists.test)]
    some = [(openings[place % len(openings)],) for place in range(rows)]
    asked = [(*one, " And what do you think about that?") for one in some]
    job.defender.answer(asked[:1], [1])  # the first call is slow
    started = time.perf_counter()
    replies = job.defender.answer(asked, list(range(rows)))
    answered = time.perf_counter() - started
    started = time.perf_counter()
    job.defender.log_ppl(some, replies)
    job.reward.score(replies)
    read = time.perf_counter() - started
    return (2 * answered + read) / rows, read / rows
