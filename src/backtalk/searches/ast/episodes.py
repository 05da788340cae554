"""An epoch's episodes: which are drawn, how they are played part by part, and where their pairs are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backtalk.models.lstm.reverse import draw_seed
from backtalk.output_file import write_whole
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.reward import Turned
from backtalk.searches.ast.rollout import Game, Preference, WeakExample

PLAYING = "playing.json"
"""The pairs of an epoch that is still being played."""
AT_ONCE = {"cpu": 64, "cuda": 1 << 20}
"""Rows of a tree's last level that are played in one batch: on a processor more are hardly quicker."""
DRAWN = 1
"""What a number is drawn for: episodes."""


class Stored(NamedTuple):
    """What an epoch's play has come to."""

    pairs: list[Preference]
    log_ppl: list[float]
    """Of every turn that was played."""
    done: int = 0
    """Parts that it is made of, while it is being played."""


class Episodes(NamedTuple):
    """What an epoch plays."""

    openings: list[int]
    weak: list[int]


def draw_episodes(config: AstConfig, epoch: int, openings: int, weak: int) -> Episodes:
    """Numbers of openings and of weak examples, until there are enough pairs."""
    draw = np.random.default_rng([config.seed, epoch, DRAWN])
    found = Episodes([], [])
    pairs = 0
    while pairs < config.experience:
        is_weak = config.loss == "sft" or draw.random() < config.weak_share
        (found.weak if is_weak else found.openings).append(int(draw.integers(weak if is_weak else openings)))
        pairs += 1 if is_weak else config.pairs_of_a_tree
    return found


def play_epoch(
    game: Game,
    openings: Sequence[str],
    weak: Sequence[WeakExample],
    config: AstConfig,
    epoch: int,
    path: Path,
    rows: int,
) -> tuple[Stored, list[Turned]]:
    """The pairs that can be learnt from, and the turns that were played now.

    Some episodes are played at a time, so that a tree's last level has `rows` rows; each part is stored at
    `path` when it is done: what a kill may lose is one of them.
    """
    chosen = draw_episodes(config, epoch, len(openings), len(weak))
    found, log_ppl, done = read_pairs(path, epoch) or Stored([], [])
    turns: list[Turned] = []
    size = max(1, rows >> config.depth)  # episodes of a part
    for start in range(done * size, len(chosen.openings), size):
        places = range(start, min(start + size, len(chosen.openings)))
        played = game.play(
            [(openings[chosen.openings[place]],) for place in places],
            [draw_seed(config.seed, epoch, 0, place) for place in places],
            config.depth,
        )
        turns += played.turns
        log_ppl += [turn.log_ppl for turn in played.turns]
        found += [
            pair
            for pair in played.pairs
            if pair.win != pair.lose and pair.win and pair.gap >= config.least_gap
        ]
        if start + size < len(chosen.openings):
            write_pairs(path, epoch, Stored(found, log_ppl, start // size + 1))
    return Stored(found + weak_pairs(weak, chosen), log_ppl), turns


def weak_pairs(weak: Sequence[WeakExample], chosen: Episodes) -> list[Preference]:
    """Winners without losers."""
    drawn = [weak[place] for place in chosen.weak]
    return [Preference((one.prompt,), one.continuation, "", weak=True) for one in drawn]


def write_pairs(path: Path, epoch: int, stored: Stored) -> None:
    write_whole(path, json.dumps({"epoch": epoch, **stored._asdict()}))


def read_pairs(path: Path, epoch: int) -> Stored | None:
    """What is stored of that epoch, where it is there whole."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["epoch"] != epoch:
            return None
        pairs = [
            Preference(tuple(map(str, conversation)), str(win), str(lose), float(gap), bool(weak))
            for conversation, win, lose, gap, weak in stored["pairs"]
        ]
        return Stored(pairs, list(map(float, stored["log_ppl"])), int(stored["done"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
