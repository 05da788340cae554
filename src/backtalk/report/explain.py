"""Criteria in plain words. A criterion's name is its recipe, so the words are read off the name."""

from __future__ import annotations

import re

from backtalk.wording import chance, count, percent, percent_range, sampled

_LIKELIHOOD = re.compile(r"(?P<side>io|o)-(?P<kind>greedy|sample-min|sample-avg)(?:-k(?P<k>[\d.]+))?")
_PLAIN = {
    "exact": "the reply is the sentence, word for word",
    "contains": "the sentence stands in the reply",
}


def meaning(criterion: str) -> str:
    """What the criterion asks for, as a clause: "the reply is the sentence, word for word"."""
    name, _, extra = criterion.partition("+")
    found = _LIKELIHOOD.fullmatch(name)
    if found is None:
        said = _PLAIN.get(name) or _scored(name)
        return f"{said}, and the input is itself likely" if extra == "likely" else said
    k = float(found["k"] or 1)
    least = {1.0: "at least", 2.0: "at least half"}.get(k, f"at least 1/{k:g}")
    as_likely = f"{least} as likely as"
    said = {
        "greedy": "the model really says it (greedy decoding)",
        "sample-avg": f"its words are, on average, {as_likely} those of a usual reply",
        "sample-min": f"its every word is {as_likely} the average word of a usual reply",
    }[found["kind"]]
    if found["side"] == "o":
        return said
    return f"{said}; the input's words are {as_likely} those of a usual sentence"


def _scored(name: str) -> str:
    kind, _, least = name.rpartition("-")
    if kind == "similar":
        return f"the reply is at least {least} similar to the sentence"
    if kind == "toxic":
        return f"the reply's toxicity is rated {least} or more"
    return f"the criterion {name} holds"


def headline(
    criterion: str,
    hits: int,
    n: int,
    low: float,
    high: float,
    greedy: int | None,
    best: float | None,
    speaker: str = "Greedy decoding",
    middle: float | None = None,
    at_once: int = 0,
) -> str:
    """The result in a few sentences. `greedy`: how many of the n `speaker` really says; `best`: the
    log-probability of the likeliest sentence among the hits, `middle` that of the median one; `at_once`: hits
    that were there before anything was searched."""
    if n == 0:
        return "Nothing could be scored, so this run says nothing about the model."
    share = f"({percent(hits / n)}, 95% interval {percent_range(low, high)})"
    amount = f"{hits:,}" if hits else "None"
    sentences = [f"{amount} of {count(n, 'sentence')} {share} {_verb(criterion)}."]
    if hits == 0:
        sentences.append("No hit found is not proof that there is none.")
    if greedy is not None and "greedy" not in criterion and criterion.partition("+")[0] != "exact":
        said = "none of them" if greedy == 0 else f"{greedy:,} of the {n:,}"
        exactly = "" if speaker == "Greedy decoding" else " word for word"
        sentences.append(f"{speaker} said {said}{exactly}.")
    if hits and best is not None and "sample" in criterion:
        median = f", the median one in {chance(middle)}" if middle is not None else ""
        sentences.append(f"The likeliest of the hits comes up in {sampled(best)} to its input{median}.")
    if hits and at_once:
        sentences.append(f"{at_once:,} of the hits needed no search: an input drawn at random was enough.")
    return " ".join(sentences)


def _verb(criterion: str) -> str:
    name, _, extra = criterion.partition("+")
    found = _LIKELIHOOD.fullmatch(name)
    if found:
        k = float(found["k"] or 1)
        likely = "likely" if k == 1 else f"likely (to a factor of {k:g} a word)"
        made = {
            "greedy": "can be drawn from the model, word for word,",
            "sample-avg": f"can be made {likely}",
            "sample-min": f"can be made {likely} in every word",
        }[found["kind"]]
        by_likely = found["side"] == "io"
    else:
        kind, _, least = name.rpartition("-")
        scored = {
            "similar": f"can be drawn from the model to a similarity of {least}",
            "toxic": f"led to a reply of toxicity {least} or more",
        }
        made = {
            name: scored.get(kind, f"can be made to meet {name}"),
            "exact": "can be drawn from the model, word for word,",
            "contains": "can be drawn from the model as part of a reply",
        }[name]
        by_likely = extra == "likely"
    return f"{made} by an input that is itself likely" if by_likely else f"{made} by some input"
