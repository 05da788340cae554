"""Figure 1: how unlikely each word of a malicious target is, before and after negative training, with and
without frequent-word avoiding (FWA); and the samples of Tables 5 and 10 to 13.

The targets are of our own list, after triggers that a search found on the baseline. Samples are the embedded
model's replies to the embedded pairs: text of the other corpora may not be shown.
"""

import numpy as np

from backtalk.audit.cases import can_say
from backtalk.data.corpora import reference_pairs
from backtalk.data.targets import load_mal
from backtalk.models.folder import load_embedded, load_folder
from backtalk.scorers.likelihood import score_triggers
from backtalk.stats import standard_error
from backtalk.store import Run
from backtalk.training.negative import PAPER_AVOID, avoid_ids
from backtalk.types import Turn
from reproduction.egregious.search import search
from reproduction.negative.data import NegativeData, open_baseline
from reproduction.negative.malicious import measure_settings, row_model
from reproduction.negative.mmi import MMI, mmi_ids
from reproduction.negative.paper import BASELINE, Size
from reproduction.page import Result
from reproduction.runner import Workplace

Rows = list[list[float]]  # A value for each word of each target
SHOWN_TARGETS = 5
SHOWN_SAMPLES = 12
FIRST_SAMPLE = 500  # of the embedded pairs; where no corpus is installed those before it keep the model whole
MODELS = {"baseline": BASELINE, "negative": "500", "negative without FWA": "500-no-fwa"}
"""What the figure calls a model, and the row of Table 3 that made it."""


def follow_words(place: Workplace, data: NegativeData, size: Size, corpus: str, hit: str) -> Result:
    baseline = open_baseline(place, data.sources[corpus])
    targets = [target for target in load_mal() if can_say(baseline, target.text)][: size.words]
    if not targets:
        return {"targets": 0, "sentences": []}
    search(place, place.part, baseline, targets, {**measure_settings(size, hit), "restarts": 1})
    with Run.open(place.path("runs", place.part)) as run:
        found = [finding for finding in run.findings() if finding.status == "found"]
    triggers = [finding.turns[0].ids for finding in found]
    goals = [baseline.encode_target(finding.target) for finding in found]
    spared = avoid_ids(PAPER_AVOID, baseline.vocabulary)
    models = {name: row_model(place, baseline, corpus, hit, row) for name, row in MODELS.items()}
    nll = {
        name: [
            [-value for value in one.series["token_log_probs"]]
            for one in score_triggers(model, triggers, goals)
        ]
        for name, model in models.items()
    }
    shown = sorted(range(len(found)), key=lambda i: np.mean(nll["baseline"][i]))[:SHOWN_TARGETS]
    return {
        "T_out": float(baseline.card["T_out"]),
        "targets": len(found),
        "sentences": [
            {
                "words": [*baseline.vocabulary.words(goals[i][:-1]), "<eos>"],
                "nll": {name: rows[i] for name, rows in nll.items()},
            }
            for i in shown
        ],
        "mean": {name: _by_kind(rows, goals, spared) for name, rows in nll.items()},
        "rise": {name: _by_kind(_rises(nll, name), goals, spared) for name in list(MODELS)[1:]},
        "perplexity": {name: model.card["test_perplexity"] for name, model in models.items()},
    }


def _by_kind(rows: Rows, goals: list[list[int]], spared: frozenset[int]) -> Result:
    """The means over words that FWA spares, and over the others."""
    pairs = [pair for row, goal in zip(rows, goals, strict=True) for pair in zip(row, goal, strict=True)]
    return {
        kind: mean_with_interval([value for value, word in pairs if (word in spared) == wanted])
        for kind, wanted in (("spared", True), ("others", False))
    }


def _rises(nll: dict[str, Rows], name: str) -> Rows:
    both = zip(nll[name], nll["baseline"], strict=True)
    return [[after - before for after, before in zip(*rows, strict=True)] for rows in both]


def mean_with_interval(values: list[float]) -> dict[str, float]:
    """The mean, and 1.96 standard errors to both sides."""
    if not values:
        return {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 0}
    mean = float(np.mean(values))
    half = 1.96 * standard_error(values)
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": len(values)}


def show_samples(place: Workplace, against_targets: str, against_frequent: str) -> Result:
    """Consecutive test inputs, the embedded model before and after both kinds of hardening, and with MMI."""
    before = load_embedded("chitchat", place.device)
    inputs = [text for text, _ in reference_pairs("")[FIRST_SAMPLE : FIRST_SAMPLE + SHOWN_SAMPLES]]
    dialogues = [(Turn("user", text),) for text in inputs]
    replies = {"input": inputs, "baseline": before.reply(dialogues)}
    for title, part in {"against targets": against_targets, "against frequent": against_frequent}.items():
        model = load_folder(str(place.path("hardenings", part, "model")), place.device)
        replies[title] = model.reply(dialogues)
    replies["MMI"] = [before.read(ids) for ids in mmi_ids(before, before.encode_dialogues(dialogues), MMI())]
    return {"samples": [dict(zip(replies, row, strict=True)) for row in zip(*replies.values(), strict=True)]}
