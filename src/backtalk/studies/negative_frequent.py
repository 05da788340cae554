"""Tables 4 and 9: a baseline's replies to the test inputs, greedy, by beam and by MMI, and those of models
that were trained against frequent replies: by a GAN, and by negative training.

Every row is measured on the same test pairs; validation pairs choose the GAN's rate and MMI's lambda and
gamma.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import torch

from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD
from backtalk.hardening.pairs import Pairs, read_pairs
from backtalk.models.decode import beam
from backtalk.models.local import BATCH, LocalModel
from backtalk.models.mmi import MMI, mmi_ids
from backtalk.scorers.diversity import Words, bleu, commonest, distinct, entropy
from backtalk.stats import Rate
from backtalk.studies.egregious_data import SEED
from backtalk.studies.hardenings import run_harden, told
from backtalk.studies.negative_data import NegativeData, open_baseline
from backtalk.studies.negative_sizes import Size
from backtalk.studies.parts import Result, Workplace
from backtalk.training.likelihood import mean_log_likelihood, perplexity


def frequent_settings(size: Size, over: Mapping[str, Any]) -> dict[str, Any]:
    """What a row's result depends on, as `harden` takes it: Algorithm 2 or the GAN, the same mini-batches."""
    return {
        "against": "frequent",
        "iterations": size.frequent_iterations,
        "steps_per_iteration": size.frequent_steps,
        "keep": "last",
        "measure": size.measure,
        "seed": SEED,
        **over,
    }


def negative_over(size: Size, r_thres: str, eos_scale: str = "0.1") -> dict[str, Any]:
    return {"r_thres": r_thres, "eos_scale": float(eos_scale), "window": size.window}


def gan_over(size: Size, alpha: str) -> dict[str, Any]:
    filters = {"gan_filters": size.gan_filters, "gan_hidden": size.gan_hidden}
    return {"method": "gan", "gan_lr": float(alpha), **filters}


def harden_frequent_row(
    place: Workplace, data: NegativeData, corpus: str, settings: Mapping[str, Any]
) -> Result:
    """One training; its last iteration is kept, as in the paper."""
    model = open_baseline(place, data.sources[corpus])
    found = told(run_harden(place, {**settings, "model": model.name}))
    return {"corpus": corpus, "row": row_of_cost(found["cost"]), **found}


def row_of_cost(cost: Mapping[str, Any]) -> Result:
    """The hardened model's side of a cost, in the words of `describe`."""
    return {
        "perplexity": cost["perplexity"][1],
        "n": cost["pairs"],
        "max_ratio": Rate.of(cost["commonest"][1], cost["pairs"]).as_dict(),
        "ent_2": cost["ent_2"][1],
        "ent_3": cost["ent_3"][1],
        "distinct_2": cost["distinct_2"][1],
        "length": cost["length"][1],
        "bleu_4": cost["bleu_4"][1] if cost["bleu_4"] else None,
    }


def describe(replies: Sequence[Words], real: Sequence[Words], ppl: float | None = None) -> Result:
    """A row of Table 4 and 9: what some replies are like as a whole."""
    return {
        "perplexity": ppl,
        "n": len(replies),
        "max_ratio": Rate.of(commonest(replies), len(replies)).as_dict(),
        "ent_2": entropy(replies, 2),
        "ent_3": entropy(replies, 3),
        "distinct_2": distinct(replies, 2),
        "length": sum(map(len, replies)) / len(replies),
        "bleu_4": None if replies is real else bleu(replies, real),
    }


@torch.no_grad()
def describe_baseline(place: Workplace, data: NegativeData, size: Size, corpus: str) -> Result:
    """The test set's own replies, greedy ones, and those of a beam beside greedy ones to the same inputs."""
    model = open_baseline(place, data.sources[corpus])
    found = read_pairs("", "auto", model, size.measure, SEED)
    pairs, real, few = found.measured, _real(model, found), size.beam_inputs
    greedy = spoken(model, model.greedy_ids(placed(model, pairs)))
    beamed = spoken(model, _beam_ids(model, placed(model, pairs)[:few], size.beam))
    mean = mean_log_likelihood(model.network, pairs, model.device)
    return {
        "corpus": corpus,
        "rows": {
            "test set": describe(real, real),
            "baseline": describe(greedy, real, perplexity(mean)),
            "greedy beside beam": describe(greedy[:few], real[:few]),
            "beam": describe(beamed, real[:few]),
        },
        "beam_width": size.beam,
    }


@torch.no_grad()
def describe_mmi(place: Workplace, data: NegativeData, size: Size, corpus: str) -> Result:
    """MMI-antiLM with the lambda and gamma of lowest max-ratio among those that do not lower BLEU-4 on
    validation pairs: the lowest of all would be ungrammatical. None may be left, as the paper found for
    Ubuntu."""
    model = open_baseline(place, data.sources[corpus])
    pairs = read_pairs("", "auto", model, size.measure, SEED, apart=True)
    assert pairs.selection is not None
    chosen = PairArrays(*(part[: size.choosing] for part in pairs.selection))
    real = spoken(model, chosen.replies.tolist())
    plain = describe(spoken(model, model.greedy_ids(placed(model, chosen))), real)
    tried = []
    for weight, words in product(size.mmi_weights, size.mmi_words):
        replies = mmi_ids(model, placed(model, chosen), MMI(weight, words))
        tried.append({"weight": weight, "words": words, **describe(spoken(model, replies), real)})
    best = choose_mmi(plain, tried)
    setting = MMI(best["weight"], best["words"]) if best else MMI(0.0, 0)
    test = pairs.measured
    said = spoken(model, mmi_ids(model, placed(model, test), setting))
    return {
        "corpus": corpus,
        "row": describe(said, _real(model, pairs)),
        "weight": setting.weight,
        "words": setting.words,
        "plain": plain,
        "tried": tried,
    }


def choose_mmi(plain: Mapping[str, Any], tried: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The one of lowest max-ratio, below plain greedy decoding's, with no lower BLEU-4."""
    allowed = [
        one
        for one in tried
        if one["bleu_4"] >= plain["bleu_4"] and one["max_ratio"]["rate"] < plain["max_ratio"]["rate"]
    ]
    return min(allowed, key=lambda one: float(one["max_ratio"]["rate"]), default=None)


def placed(model: LocalModel, pairs: PairArrays) -> torch.Tensor:
    """(pairs, max_input) ids where the model is; one that masks padding is not harmed by too much of it."""
    return torch.from_numpy(pairs.inputs).to(model.device)


def spoken(model: LocalModel, rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [model.vocabulary.words([i for i in row if i not in (PAD, EOS)]) for row in rows]


def _real(model: LocalModel, pairs: Pairs) -> list[list[str]]:
    """The test replies as they are, not cropped, as `hardening.cost` has them."""
    return spoken(model, [model.encode_target(reply) for _, reply in pairs.measured_texts])


def _beam_ids(model: LocalModel, inputs: torch.Tensor, width: int) -> list[list[int]]:
    """The likeliest reply to each row."""
    found: list[list[int]] = []
    for part in torch.split(inputs, max(1, 8 * BATCH // width)):
        state = model.network.start(part)
        best = beam(model.network, state, len(part), model.max_output, width, model.device)
        found += [row[0].ids for row in best]
    return found
