"""`python -m reproduction reverse`: Liu et al. 2019 from the victim's training to its last table.

Read it as a table of contents: each line below is a part, what it needs, and what it fills on the page.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path

from reproduction.egregious.data import EMBEDDED
from reproduction.parts import Part, claim_folder
from reproduction.reverse.data import Text, open_texts
from reproduction.reverse.mal import SEARCHES, audit_mal
from reproduction.reverse.page import write_page
from reproduction.reverse.results import decoders
from reproduction.reverse.sizes import SIZES, Size
from reproduction.reverse.steps import (
    choose_targets,
    compare_at_equal_queries,
    measure_decoder,
    measure_inputs,
    pretrain_generator,
    reinforce_generator,
    train_victim,
)
from reproduction.spec import StudySpec
from reproduction.telling import run_and_tell


def run_study(spec: StudySpec) -> int:
    """Runs the chosen parts, writes the page of all that is there, and says what is not."""
    folder = Path(spec.out)
    claim_folder(folder)
    size = SIZES[spec.size].limited(spec.limit)
    texts = open_texts(spec.data, folder)
    kind = "embedded" if spec.data == EMBEDDED else "files"
    page = partial(write_page, spec=spec, size=size, corpora=list(texts))
    return run_and_tell(reverse_parts(texts, size, kind), spec, "reverse", page)


def reverse_parts(texts: dict[str, Text], size: Size, kind: str) -> list[Part]:
    """Every part of the study, in an order in which they can run."""
    every = tuple(texts.values())
    return [
        *_trained(every, size, kind),
        *(part for text in every for part in _corpus(text, size)),
        *_mal(texts, size, kind),
    ]


def _trained(texts: tuple[Text, ...], size: Size, kind: str) -> list[Part]:
    """One victim, which learnt from all texts, and its generator before and after REINFORCE."""
    numbers = asdict(size)
    learning = {key: numbers[key] for key in ("layers", "hidden", "embedding", "epochs", "batch", "pairs")}
    training = {key: numbers[key] for key in numbers if key.startswith("victim")} | {"data": kind}
    rewards = {key: numbers[key] for key in ("rl_steps", "rl_batch", "rl_samples")}
    files = tuple(file for text in texts for file in text.files)
    victim, pre, rl = (
        partial(step, texts=texts, size=size)
        for step in (train_victim, pretrain_generator, reinforce_generator)
    )
    return [
        Part("victim", (), victim, training, files, ("models/victim",)),
        Part("pretrain", ("victim",), pre, learning, owns=("generators/pretrained",)),
        Part("rl", ("pretrain",), rl, rewards, owns=("generators/rl",)),
    ]


def _corpus(text: Text, size: Size) -> list[Part]:
    """What is reached of the targets of one corpus."""
    name, targets = text.corpus, f"targets-{text.corpus}"
    chosen = partial(choose_targets, text=text, size=size)
    parts = [
        Part(targets, ("victim",), chosen, {"targets": size.targets}),
        Part(f"inputs-{name}", (targets,), partial(measure_inputs, text=text)),
    ]
    for decoder in decoders(size):
        which, how, width = (*decoder.split("-"), "1")[:3]
        run = partial(measure_decoder, text=text, which=which, how=how, width=int(width))
        needs = (targets, "rl" if which == "rl" else "pretrain")
        parts.append(Part(f"decode-{name}-{decoder}", needs, run, {"how": how, "width": width}))
    equal = partial(compare_at_equal_queries, text=text, size=size)
    parts.append(Part(f"equal-{name}", (targets, "rl"), equal, {"beam": size.equal_beam}))
    return parts


def _mal(texts: dict[str, Text], size: Size, kind: str) -> list[Part]:
    settings = {"queries": size.mal_queries, "targets": size.mal_targets, "judge": size.judge, "data": kind}
    utterances = texts["chitchat"].source if kind == "embedded" else ""
    return [
        Part(
            f"mal-{name}",
            (),
            partial(audit_mal, name=name, size=size, utterances=utterances),
            settings,
            owns=(f"runs/mal-{name}",),
        )
        for name in SEARCHES
    ]
