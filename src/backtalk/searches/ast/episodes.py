"""The episodes of an epoch: how they are drawn and played, and how their pairs are stored."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from backtalk.data.openings import OpeningLists
from backtalk.errors import InputError
from backtalk.models.lstm.reverse import draw_seed
from backtalk.output_file import write_whole
from backtalk.protocols import Scorer
from backtalk.searches.ast.config import AstConfig
from backtalk.searches.ast.rollout import Game, Preference, ScoredTurn, WeakExample

PLAYING = "playing.json"  # the file with the pairs of an unfinished epoch
AT_ONCE = {"cpu": 64, "cuda": 1 << 20}
"""Rows of a tree's last level that are played in one batch; on a CPU more are hardly faster."""
EPISODES, ORDER = 1, 2  # mark the seeds of different draws; `train` has others


class Stored(NamedTuple):
    pairs: list[Preference]  # of an epoch
    log_ppl: list[float]  # the log-perplexity of every played prompt
    done: int = 0  # finished parts of an unfinished epoch


class Episodes(NamedTuple):
    """The indices of the openings and weak examples of an epoch."""

    openings: list[int]
    weak: list[int]


def draw_episodes(config: AstConfig, epoch: int, openings: int, weak: int) -> Episodes:
    """Draws openings and weak examples until there are enough pairs."""
    draw = np.random.default_rng([config.seed, epoch, EPISODES])
    found = Episodes([], [])
    pairs = 0
    while pairs < config.experience:
        is_weak = config.loss == "sft" or draw.random() < config.weak_share
        (found.weak if is_weak else found.openings).append(int(draw.integers(weak if is_weak else openings)))
        pairs += 1 if is_weak else config.pairs_of_a_tree
    return found


def play_epoch(
    game: Game, openings: Sequence[str], weak: Sequence[WeakExample], epoch: int, path: Path, rows: int
) -> tuple[Stored, list[ScoredTurn]]:
    """The pairs to learn from, and the turns that were played now. Episodes are played in parts of `rows`
    rows at a tree's last level. Each part is stored at `path`, so that a kill loses one part at most."""
    config = game.config
    chosen = draw_episodes(config, epoch, len(openings), len(weak))
    found, log_ppl, done = read_pairs(path, epoch) or Stored([], [])
    turns: list[ScoredTurn] = []
    size = max(1, rows >> config.depth)  # episodes of a part
    for start in range(done * size, len(chosen.openings), size):
        places = range(start, min(start + size, len(chosen.openings)))
        seeds = [draw_seed(config.seed, epoch, 0, place) for place in places]
        played = game.play([(openings[chosen.openings[place]],) for place in places], seeds, config.depth)
        turns += played.turns
        log_ppl += [turn.log_ppl for turn in played.turns]
        differ = [pair for pair in played.pairs if pair.win != pair.lose and pair.win]
        found += [pair for pair in differ if pair.gap >= config.least_gap]
        if start + size < len(chosen.openings):
            write_pairs(path, epoch, Stored(found, log_ppl, start // size + 1))
    return Stored(found + [weak[place].pair for place in chosen.weak], log_ppl), turns


def epoch_pairs(
    game: Game, openings: Sequence[str], weak: Sequence[WeakExample], epoch: int, path: Path, fall_back: bool
) -> tuple[Stored, list[ScoredTurn]]:
    """`experience` pairs in the order of the updates, and the turns that were played. With `fall_back`, an
    epoch in which no pair differs enough takes weak examples instead."""
    config = game.config
    turns, log_ppl = list[ScoredTurn](), list[float]()
    if config.loss == "sft":
        texts = [weak[place] for place in draw_episodes(config, epoch, 0, len(weak)).weak]
        found = [Preference(("",), one.prompt + one.continuation, "", weak=True) for one in texts]
    else:
        rows = AT_ONCE[game.defender.model.device.type]
        (found, log_ppl, _), turns = play_epoch(game, openings, weak, epoch, path, rows)
    if not found and fall_back:
        chosen = draw_episodes(replace(config, weak_share=1.0), epoch, 0, len(weak))
        found = [weak[place].pair for place in chosen.weak]
    if not found:
        raise InputError("no pair differs enough to learn from; lower --least-gap, or give --weak")
    order = np.random.default_rng([config.seed, epoch, ORDER]).permutation(len(found))
    # Exactly `experience` pairs: surplus ones are dropped, missing ones filled by repeating others.
    return Stored([found[place] for place in np.resize(order, config.experience).tolist()], log_ppl), turns


def weak_examples(texts: Sequence[str]) -> list[WeakExample]:
    """Texts that turn toxic, each split in the middle of its words, as the paper's code does."""
    found = []
    for text in texts:
        starts = [match.start() for match in re.finditer(r"\S+", text)]
        if len(starts) > 1:
            split = len(text[: starts[len(starts) // 2]].rstrip())  # a word keeps the space before it
            found.append(WeakExample(text[:split], text[split:]))
    if texts and not found:
        raise InputError("the weak set has no text of two words; give whole sentences")
    return found


def harmless_openings(
    lists: OpeningLists, scorer: Scorer, at_most: float
) -> tuple[OpeningLists, dict[str, int]]:
    """The openings that the scorer rates at most `at_most`, and how many of each list were left out."""
    kept, left_out = {}, {}
    for part, every in lists.by_name().items():
        own = [one for one in every if one.text.strip()]
        scores = scorer.score([one.text for one in own]).tolist() if own else []
        kept[part] = [one for one, score in zip(own, scores, strict=True) if score <= at_most]
        left_out[part] = len(every) - len(kept[part])
    if not kept["test"]:
        raise InputError(f"{lists.source}: the scorer finds every test opening toxic; give harmless ones")
    return OpeningLists(**kept, source=lists.source), left_out


def write_pairs(path: Path, epoch: int, stored: Stored) -> None:
    write_whole(path, json.dumps({"epoch": epoch, **stored._asdict()}))


def read_pairs(path: Path, epoch: int) -> Stored | None:
    """The stored pairs of that epoch, if the file is complete."""
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
