"""Table 1 and figures 2 and 3: relaxed inputs for the Ubuntu attention model, before and after projection.

Rows take all their steps, as in the paper. A target is hit before projection if greedy decoding gave it at
any look; how many still did at the end is stored beside it, since it is the end that is projected. Beside
the hits after projection stand what chance gives, as a common reply may come of any words, what the projected
start gives, and how long the targets are.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb, factorial
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.audit.cases import can_say
from backtalk.data.vocabulary import PAD
from backtalk.models.lstm.decode import greedy, trim
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.scoring import score_targets
from backtalk.searches.relax import Descent, OneHot, Relax, descents
from backtalk.searches.trial import row_seed
from backtalk.stats import Rate
from backtalk.types import Target
from reproduction.egregious.data import SEED, Data, is_own
from reproduction.egregious.paper import Size
from reproduction.egregious.search import list_targets, open_model
from reproduction.page import Result
from reproduction.runner import Workplace


class RelaxRun(NamedTuple):
    targets: str
    space: Literal["one-hot", "embedding"]
    lambda_c: float
    corpus: str = "ubuntu"


RUNS = {
    "normal-embedding": RelaxRun("normal", "embedding", 0.0),
    "mal-embedding": RelaxRun("mal", "embedding", 0.0),
    "normal-one-hot": RelaxRun("normal", "one-hot", 1.0),
    "mal-one-hot": RelaxRun("mal", "one-hot", 0.1),
    "normal-one-hot-free": RelaxRun("normal", "one-hot", 0.0),
    "normal-one-hot-light": RelaxRun("normal", "one-hot", 0.01),
    "mal-one-hot-light": RelaxRun("mal", "one-hot", 0.001),
    "normal-one-hot-weak": RelaxRun("normal", "one-hot", 0.1),
    "mal-one-hot-free": RelaxRun("mal", "one-hot", 0.0),
    "switchboard-normal-embedding": RelaxRun("normal", "embedding", 0.0, "switchboard"),
    "switchboard-mal-embedding": RelaxRun("mal", "embedding", 0.0, "switchboard"),
    "switchboard-normal-one-hot-light": RelaxRun("normal", "one-hot", 0.01, "switchboard"),
    "switchboard-mal-one-hot-light": RelaxRun("mal", "one-hot", 0.001, "switchboard"),
}
"""The first four are appendix A's, normal with 0 is for figure 2a. The others are ours: with eq. 10 summed
over the vocabulary, as printed, the paper's weights leave our model no room; and Ubuntu is a slice, while
Switchboard is whole. Its normal targets are sampled: greedy decoding says few different things there."""
BINS = 20
FIGURE_3_TARGETS = 50
SHOWN = 12
CONTROLS = ("chance", "start", "by_words")
"""Stored beside the hits after projection; part of a run's settings, so results without them run again."""


def relax_targets(place: Workplace, data: Data, size: Size, run: str) -> Result:
    """One run of Table 1."""
    list_name, space, lambda_c, corpus = RUNS[run]
    model = open_model(place, corpus, "attention")
    steps = size.relax_steps or Relax.steps
    config = Relax(space=space, lambda_c=lambda_c, length=size.length, stop_at_hit=False, steps=steps)
    return relax_list(model, list_targets(data, size, model, corpus, list_name), config)


def relax_list(model: LocalModel, targets: Sequence[Target], config: Relax) -> Result:
    """One list in one space, as numbers; text only of targets that stand in our own list."""
    known = [target for target in targets if can_say(model, target.text)]
    edges = [edge / BINS for edge in range(BINS + 1)]
    result: Result = {"lambda_c": config.lambda_c, "edges": edges, "skipped": len(targets) - len(known)}
    if not known:
        return result
    seeds = [row_seed(SEED, target.id, 0) for target in known]
    goals = [model.encode_target(target.text) for target in known]
    found = measure_rows(model, goals, seeds, config)
    said_goals = [tuple(ids) for ids in goals]
    first = slice(0, FIGURE_3_TARGETS)
    return result | {
        "ever": _rate(found.hit_ever),
        "end": _rate(found.hit_at_end),
        "projected": _rate(found.hit_after),
        "chance": by_chance(said_goals, [tuple(trim(ids)) for ids in found.reply_after.tolist()])._asdict(),
        "start": _rate(found.hit_at_start),
        "by_words": _by_words(goals, found),
        "largest": [_histogram(found.largest[..., place]) for place in range(found.largest.shape[-1])],
        "embedding_distance": found.embedding_distance[first].mean(0).tolist(),
        "state_distance": found.state_distance[first].mean(0).tolist(),
        "examples": _examples(model, known, found),
    }


class Measured(NamedTuple):
    """The result of each row, on the CPU; "before" and "after" refer to the projection to words."""

    words: Tensor  # (rows, n): the projected input
    hit_ever: Tensor  # (rows,), bool: greedy decoding gave the target at some check before the projection
    hit_at_end: Tensor  # (rows,), bool: it did at the end of the optimisation
    hit_after: Tensor  # (rows,), bool: it does after the projection
    hit_at_start: Tensor  # (rows,), bool: it does for the projected start, which is random words
    reply_after: Tensor  # (rows, longest reply): ids, <eos> included where it was reached, then padded
    largest: Tensor
    """(rows, n, 2): the two largest elements of each x_t (figure 2); (rows, n, 0) for embeddings."""
    embedding_distance: Tensor  # (rows, n): the 2-norm between the embedded input before and after (figure 3)
    state_distance: Tensor  # (rows, n): the same for the encoder's outputs (figure 3)


def measure_rows(
    model: LocalModel, targets: Sequence[Sequence[int]], seeds: Sequence[int], config: Relax
) -> Measured:
    """Optimises a row for each target and measures it before and after projection."""
    order, parts = [], []
    for descent in descents(model, targets, seeds, config):
        order += descent.rows
        parts.append(_measure(model, descent))
    back = torch.tensor(order).argsort()
    return Measured(*(torch.cat(field)[back] for field in zip(*parts, strict=True)))


@torch.no_grad()
def _measure(model: LocalModel, descent: Descent) -> Measured:
    network, words = model.network, descent.variables.words()
    before, after = descent.variables.embedded(), network.embed_input(words)
    (_, outputs), (state, outputs_after) = network.read(before), network.read(after)
    reply = greedy(network, state, len(words), model.max_output, words.device)

    def is_hit(inputs: Tensor) -> Tensor:
        read, _ = network.read(network.embed_input(inputs))
        _, flags = score_targets(network, read, descent.targets, descent.lengths)
        return flags[:, 0].all(1)

    one_hot, free = isinstance(descent.variables, OneHot), descent.variables.free
    found = Measured(
        words=words,
        hit_ever=descent.hits.any(1),
        hit_at_end=descent.hits[:, -1],
        hit_after=is_hit(words),
        hit_at_start=is_hit(descent.start),
        reply_after=F.pad(reply, (0, model.max_output - reply.shape[1]), value=PAD),
        largest=torch.sigmoid(free.topk(2, dim=2).values) if one_hot else free[..., :0],
        embedding_distance=(before - after).norm(dim=2),
        state_distance=(outputs - outputs_after).norm(dim=2),
    )
    return Measured(*(part.cpu() for part in found))


def _examples(model: LocalModel, targets: Sequence[Target], found: Measured) -> list[dict[str, str]]:
    rows = [row for row in found.hit_at_end.nonzero().flatten().tolist() if is_own(targets[row].text)]
    return [
        {"target": targets[row].text, "after": model.read(found.reply_after[row].tolist())}
        for row in rows[:SHOWN]
    ]


def _by_words(targets: Sequence[Sequence[int]], found: Measured) -> dict[str, dict[str, int]]:
    lengths = torch.tensor([len(ids) - 1 for ids in targets])
    counted = {"n": torch.ones_like(found.hit_ever), "ever": found.hit_ever, "projected": found.hit_after}
    return {
        str(words): {name: int(hits[lengths == words].sum()) for name, hits in counted.items()}
        for words in sorted(set(lengths.tolist()))
    }


def _rate(flags: Tensor) -> Result:
    return Rate.of(int(flags.sum()), len(flags)).as_dict()


def _histogram(values: Tensor) -> list[int]:
    return [int(count) for count in torch.histc(values.float().flatten(), BINS, 0.0, 1.0).tolist()]


class Chance(NamedTuple):
    """What was hit beside what other targets' replies would hit."""

    hits: int  # targets whose own reply they are
    expected: float  # for each target the share of the other rows' replies that are it, summed
    p: float
    """How often a random order of the replies hits at least as many; small: replies know their targets."""


def by_chance(targets: Sequence[Hashable], replies: Sequence[Hashable]) -> Chance:
    """One reply a target, in the same order."""
    n, asked, said = len(targets), Counter(targets), Counter(replies)
    hits = sum(target == reply for target, reply in zip(targets, replies, strict=True))
    pairs = [(count, said[text]) for text, count in asked.items() if text in said]
    others = sum(targets_like_it * replies_like_it for targets_like_it, replies_like_it in pairs) - hits
    return Chance(hits, others / max(1, n - 1), at_least(hits, pairs, n))


def at_least(least: int, pairs: Sequence[tuple[int, int]], n: int) -> float:
    """P(so many hits or more) when n replies are dealt out at random; `pairs` has for each text that is both
    how many targets and how many replies it is. Whole numbers until the last division."""
    if least == 0:
        return 1.0
    ways = [1]  # ways[k]: to choose k targets and a different reply, of the same text, for each
    for m, c in pairs:
        own = [comb(m, k) * comb(c, k) * factorial(k) for k in range(min(m, c) + 1)]
        longer = [0] * (len(ways) + len(own) - 1)
        for i, one in enumerate(ways):
            for k, other in enumerate(own):
                longer[i + k] += one * other
        ways = longer
    total, sign = 0, 1
    for k in range(least, len(ways)):
        total += sign * comb(k - 1, least - 1) * ways[k] * factorial(n - k)
        sign = -sign
    return total / factorial(n)
