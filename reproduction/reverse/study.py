"""`python -m reproduction reverse`: Liu et al. 2019 from the victim's training to its last table.

Read it as a table of contents: each line below is a part, what it needs, and what it fills on the page.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

from backtalk.data.targets import load_mal, one_per_prototype, write_targets
from backtalk.hits import TEXT_STANDARD, TRIED, rates_by_category
from backtalk.scorers.similarity import WordVectors, load_vectors
from backtalk.searches.reverse.rerank import embedded_scorer
from backtalk.store import Run
from backtalk.types import Finding
from reproduction.hardenings import run_audit
from reproduction.page import Result
from reproduction.reverse import steps
from reproduction.reverse.page import page_lines, without_cases
from reproduction.reverse.paper import SEARCHES, SIZES, Size, decoders
from reproduction.reverse.steps import SEED, Text, open_texts
from reproduction.runner import Part, Study, Workplace
from reproduction.spec import EMBEDDED, StudySpec
from reproduction.verdicts import mean_of


def reverse_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    texts = open_texts(spec.data, folder)
    kind = "embedded" if spec.data == EMBEDDED else "files"
    every = tuple(texts.values())
    return [
        *_trained(every, size, kind),
        *(part for text in every for part in _corpus(text, size)),
        *_mal(texts, size, kind),
    ]


def _trained(texts: tuple[Text, ...], size: Size, kind: str) -> list[Part]:
    learning = size.some("layers", "hidden", "embedding", "epochs", "batch", "pairs")
    training = size.some(*(name for name in vars(size) if name.startswith("victim"))) | {"data": kind}
    rewards = size.some("rl_steps", "rl_batch", "rl_samples")
    files = tuple(file for text in texts for file in text.files)
    run = (steps.train_victim, steps.pretrain_generator, steps.reinforce_generator)
    victim, pre, rl = (partial(step, texts=texts, size=size) for step in run)
    return [
        Part("victim", (), victim, training, files, ("models/victim",)),
        Part("pretrain", ("victim",), pre, learning, owns=("generators/pretrained",)),
        Part("rl", ("pretrain",), rl, rewards, owns=("generators/rl",)),
    ]


def _corpus(text: Text, size: Size) -> list[Part]:
    name, targets = text.corpus, f"targets-{text.corpus}"
    chosen = partial(steps.choose_targets, text=text, size=size)
    parts = [
        Part(targets, ("victim",), chosen, {"targets": size.targets}),
        Part(f"inputs-{name}", (targets,), partial(steps.measure_inputs, text=text)),
    ]
    for decoder in decoders(size):
        which, how, width = (*decoder.split("-"), "1")[:3]
        run = partial(steps.measure_decoder, text=text, which=which, how=how, width=int(width))
        needs = (targets, "rl" if which == "rl" else "pretrain")
        parts.append(Part(f"decode-{name}-{decoder}", needs, run, {"how": how, "width": width}))
    equal = partial(steps.compare_at_equal_queries, text=text, size=size)
    parts.append(Part(f"equal-{name}", (targets, "rl"), equal, {"beam": size.equal_beam}))
    return parts


def _mal(texts: dict[str, Text], size: Size, kind: str) -> list[Part]:
    settings = {"queries": size.mal_queries, "targets": size.mal_targets, "judge": size.judge, "data": kind}
    utterances = texts["chitchat"].source if kind == "embedded" else ""
    runs = {name: partial(audit_mal, name=name, size=size, utterances=utterances) for name in SEARCHES}
    return [Part(f"mal-{name}", (), run, settings, owns=(f"runs/mal-{name}",)) for name, run in runs.items()]


def audit_mal(place: Workplace, name: str, size: Size, utterances: str = "") -> Result:
    """`utterances` is a file to ask from; chitchat if empty."""
    file = place.path("lists", f"mal-{name}.jsonl")
    write_targets(file, one_per_prototype(load_mal(), size.mal_targets, SEED))
    values = {**SEARCHES[name], "targets": str(file), "seed": SEED}
    if name != "gibbs":
        values |= {"max_queries": size.mal_queries, "judge": size.judge, "utterances": utterances}
    with Run.open(run_audit(place, f"mal-{name}", values)) as run:
        vectors = load_vectors()
        findings = [_measured(finding, vectors) for finding in run.findings()]
        found = rates_by_category(run.cases, findings, TEXT_STANDARD, run.thresholds)[""]
    triggers = [finding.trigger for finding in findings if finding.status == "found"]
    _, scored, mean = embedded_scorer(place.device).average(triggers)
    return {
        "hits": {criterion: rate.as_dict() for criterion, rate in found.items()},
        "similarity": mean_of([f.scores.get("similarity", 0.0) for f in findings if f.status in TRIED]),
        "input_mean": mean if scored else None,
        "inputs_scored": scored,
    }


def _measured(finding: Finding, vectors: WordVectors) -> Finding:
    if finding.status != "found" or "similarity" in finding.scores:
        return finding
    (near,) = vectors.similarity([finding.reply], [finding.target]).tolist()
    return replace(finding, scores={**finding.scores, "similarity": near})


STUDY = Study("reverse", SIZES, reverse_parts, page_lines, without_cases)
