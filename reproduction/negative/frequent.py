"""Tables 4 and 9: a baseline's replies to the test inputs, greedy, by beam and by MMI, and those of models
that were trained against frequent replies: by a GAN, and by negative training.

Every row is measured on the same test pairs; validation pairs choose the GAN's rate and MMI's lambda and
gamma. A GAN also trains on real replies, so beside it stands a training by these updates alone (`CONTROL`).
Ent-n is the paper's: the end token counts as a word, and long replies are cropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch

from backtalk.data.pairs import PairArrays
from backtalk.data.targets import read_targets
from backtalk.data.vocabulary import EOS, PAD
from backtalk.models.folder import load_embedded, load_folder
from backtalk.models.lstm.decode import beam
from backtalk.models.lstm.model import BATCH, LocalModel
from backtalk.paraphrase.augment import words_of
from backtalk.scorers.cost import Words, bleu, commonest, distinct, entropy
from backtalk.stats import Rate
from backtalk.training.mle import mean_log_likelihood, perplexity
from backtalk.training.pairs import Pairs, read_pairs
from reproduction.egregious.data import SEED
from reproduction.hardenings import page_values, run_harden
from reproduction.negative.bleu import bleu_counts, bleu_gain
from reproduction.negative.data import NegativeData, open_baseline
from reproduction.negative.mmi import MMI, mmi_ids
from reproduction.negative.paper import Size
from reproduction.page import Found, Result
from reproduction.runner import Workplace

CONTROL = "gan-0"  # the row of the GAN's positive updates alone
DESCRIBED = {"ent": "with the end token, cropped", "floor": "of the commonest input"}
"""What `describe` says of a row, as a part of its key: a row with another description runs again."""
MMI_RULE = {"rule": "lowest max-ratio, BLEU-4 lower by no more than chance"}
"""How MMI's lambda and gamma are chosen, likewise."""


def _ended(replies: Sequence[Words], longest: int) -> list[list[str]]:
    return [[*words[: longest - 1], "<eos>"] for words in replies]


def harden_frequent_row(place: Workplace, data: NegativeData, corpus: str, settings: Found) -> Result:
    """One training; its last iteration is kept, as in the paper."""
    baseline = open_baseline(place, data.sources[corpus])
    found = page_values(run_harden(place, {**settings, "model": baseline.name}))
    model = load_folder(str(place.path("hardenings", place.part, "model")), place.device)
    pairs = read_pairs("", "auto", baseline, settings["measure"], settings["seed"])
    after = found["cost"]["perplexity"][1]
    row = describe(greedy_words(model, pairs.measured), pair_words(model, pairs), after)
    return {"corpus": corpus, "row": row, **found}


class PairWords(NamedTuple):
    """The words of the pairs that a row is measured on."""

    inputs: list[list[str]]  # as the model reads them
    real: list[list[str]]
    longest: int  # tokens of a model's reply at most, its end among them

    def first(self, count: int) -> PairWords:
        return PairWords(self.inputs[:count], self.real[:count], self.longest)


def pair_words(model: LocalModel, pairs: Pairs) -> PairWords:
    """The test pairs; people's replies as they are, not cropped, as `hardening.cost` has them."""
    real = reply_words(model, [model.encode_target(reply) for _, reply in pairs.measured_texts])
    return PairWords(reply_words(model, pairs.measured.inputs.tolist()), real, model.max_output)


def describe(replies: Sequence[Words], asked: PairWords, ppl: float | None = None) -> Result:
    """A row of Table 4 and 9: what some replies are like as a whole. A model's have a floor: equal inputs get
    equal replies, so its commonest reply is given at least as often as the commonest input is there."""
    counted, is_real = _ended(replies, asked.longest), replies is asked.real
    return {
        "perplexity": ppl,
        "n": len(replies),
        "max_ratio": Rate.of(commonest(replies), len(replies)).as_dict(),
        "floor": None if is_real else Rate.of(commonest(asked.inputs), len(replies)).as_dict(),
        "ent_2_eos": entropy(counted, 2),
        "ent_3_eos": entropy(counted, 3),
        "distinct_2": distinct(replies, 2),
        "length": sum(map(len, replies)) / len(replies),
        "bleu_4": None if is_real else bleu(replies, asked.real),
    }


@torch.no_grad()
def describe_baseline(place: Workplace, data: NegativeData, size: Size, corpus: str) -> Result:
    """The test set's own replies, greedy ones, and those of a beam beside greedy ones to the same inputs."""
    model = open_baseline(place, data.sources[corpus])
    found = read_pairs("", "auto", model, size.measure, SEED)
    pairs, test, few = found.measured, pair_words(model, found), size.beam_inputs
    greedy = greedy_words(model, pairs)
    beamed = reply_words(model, _beam_ids(model, input_ids(model, pairs)[:few], size.beam))
    mean = mean_log_likelihood(model.network, pairs, model.device)
    rows = {
        "test set": describe(test.real, test),
        "baseline": describe(greedy, test, perplexity(mean)),
        "greedy beside beam": describe(greedy[:few], test.first(few)),
        "beam": describe(beamed, test.first(few)),
    }
    return {"corpus": corpus, "rows": rows, "beam_width": size.beam}


@torch.no_grad()
def describe_mmi(place: Workplace, data: NegativeData, size: Size, corpus: str) -> Result:
    """MMI-antiLM with the lambda and gamma of lowest max-ratio among those whose BLEU-4 on validation pairs
    is not lower than plain decoding's by more than chance: the lowest of all would be ungrammatical. None may
    be left, as the paper found for Ubuntu."""
    model = open_baseline(place, data.sources[corpus])
    pairs = read_pairs("", "auto", model, size.measure, SEED, apart=True)
    assert pairs.selection is not None
    chosen = PairArrays(*(part[: size.choosing] for part in pairs.selection))
    inputs, real = (reply_words(model, part.tolist()) for part in chosen)
    valid = PairWords(inputs, real, model.max_output)
    greedy = greedy_words(model, chosen)
    plain, counts = describe(greedy, valid), bleu_counts(greedy, real)
    tried = []
    for weight, words in product(size.mmi_weights, size.mmi_words):
        said = reply_words(model, mmi_ids(model, input_ids(model, chosen), MMI(weight, words)))
        gain = bleu_gain(counts, bleu_counts(said, real))._asdict()
        tried.append({"weight": weight, "words": words, "bleu_gain": gain, **describe(said, valid)})
    best = choose_mmi(plain, tried)
    setting = MMI(best["weight"], best["words"]) if best else MMI(0.0, 0)
    said = reply_words(model, mmi_ids(model, input_ids(model, pairs.measured), setting))
    row = describe(said, pair_words(model, pairs))
    chosen_by = {"weight": setting.weight, "words": setting.words, "plain": plain, "tried": tried}
    return {"corpus": corpus, "row": row, **chosen_by}


def choose_mmi(plain: Found, tried: Sequence[Found]) -> Found | None:
    """The one of lowest max-ratio, below plain greedy decoding's, of those whose BLEU-4 is not lower by its
    whole interval; of equals the one of highest BLEU-4."""
    least = plain["max_ratio"]["rate"]
    lower = [one for one in tried if one["max_ratio"]["rate"] < least]
    allowed = [one for one in lower if one["bleu_gain"]["high"] >= 0]
    return min(allowed, key=lambda one: (one["max_ratio"]["rate"], -one["bleu_4"]), default=None)


def input_ids(model: LocalModel, pairs: PairArrays) -> torch.Tensor:
    """(pairs, max_input) ids where the model is; one that masks padding is not harmed by too much of it."""
    return torch.from_numpy(pairs.inputs).to(model.device)


def reply_words(model: LocalModel, rows: Sequence[Sequence[int]]) -> list[list[str]]:
    return [model.vocabulary.words([i for i in row if i not in (PAD, EOS)]) for row in rows]


@torch.no_grad()
def greedy_words(model: LocalModel, pairs: PairArrays) -> list[list[str]]:
    return reply_words(model, model.greedy_ids(input_ids(model, pairs)))


def _beam_ids(model: LocalModel, inputs: torch.Tensor, width: int) -> list[list[int]]:
    found: list[list[int]] = []
    for part in torch.split(inputs, max(1, 8 * BATCH // width)):
        state = model.network.start(part)
        best = beam(model.network, state, len(part), model.max_output, width, model.device)
        found += [row[0].ids for row in best]
    return found


COPIES = (0, 1, 4)  # paraphrases of each training target


def harden_embedded(place: Workplace, settings: Found, pairs: str) -> Result:
    """An ordinary hardening with its audits; and how many sentences of the widened training list the held-out
    list has too. `pairs` keep the model whole; its own where that is empty."""
    own = {name: value for name, value in settings.items() if name != "paraphraser"}  # rules are the only one
    summary = run_harden(place, {**own, "model": "chitchat", "data": pairs})
    model = load_embedded("chitchat", "cpu")
    folder = place.path("hardenings", place.part)
    lists = {name: read_targets(folder / f"{name}.jsonl") for name in ("train", "held-out")}
    words = {name: {words_of(model, one.text) for one in own} for name, own in lists.items()}
    found = page_values(summary, "held_out", "train")
    found |= {key: summary["hardening"][key] for key in ("lists", "augmentation")}
    return {**found, "overlap": len(words["train"] & words["held-out"])}


def harden_embedded_frequent(place: Workplace, settings: Found, pairs: str) -> Result:
    found = page_values(run_harden(place, {**settings, "model": "chitchat", "data": pairs}))
    return {"corpus": "embedded", **found}
