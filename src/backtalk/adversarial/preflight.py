"""How long an audit by a learnt adversary takes on this machine, from a few timed calls."""

from __future__ import annotations

import math
import time
from pathlib import Path

from backtalk.adversarial.attackers import trains
from backtalk.adversarial.job import Job, earlier_training
from backtalk.searches.ast.train import ADVERSARY as KEPT
from backtalk.searches.ast.train import steps_done
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
    steps = config.steps - steps_behind(job, folder)
    epochs = math.ceil(steps / math.ceil(config.experience / config.batch))
    # A pair is two turns of both; an epoch plays all of its pairs, though the last may not use them.
    pairs = 0.0 if config.loss == "sft" else epochs * config.experience * 2 * turn
    updates = steps * config.batch * 2 * read * UPDATE_PASSES
    measured = 1 + math.ceil(epochs / config.dev_every) if config.loss != "sft" else 0
    dev = measured * len(job.lists.dev) * config.turns * turn
    return f"{words}, the training about {duration(pairs + updates + dev)}."


def steps_behind(job: Job, folder: Path) -> int:
    """Of the training, or of the one that it goes on from."""
    done = steps_done(folder / ADVERSARY)
    return done or (steps_done(earlier_training(job.spec.train_from)) if job.spec.train_from else 0)


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
