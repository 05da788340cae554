"""`python -m reproduction egregious`: He & Glass 2019 from training to its last figure, as a list of parts.

Read it as a table of contents: each line below is a part, what it needs, and what it fills on the page.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from reproduction.egregious import analysis
from reproduction.egregious.data import Data, open_data
from reproduction.egregious.enumerate import enumerate_inputs
from reproduction.egregious.page import write_page
from reproduction.egregious.paper import ARCHS, CORPORA, NORMAL_HIT
from reproduction.egregious.relax import RUNS, relax_settings, relax_targets
from reproduction.egregious.search import run_search, search_settings
from reproduction.egregious.sizes import SIZES, Size
from reproduction.egregious.training import model_name, train_network, train_spec, training_settings
from reproduction.parts import Part, claim_folder
from reproduction.spec import StudySpec
from reproduction.telling import run_and_tell

THREE_HITS = ("o-greedy", "o-sample-min-k1", "io-sample-min-k1")
"""The three searches that fill a row of Tables 3 and 11: every other hit is decided on what they find."""
CURVE_CORPORA = ("ubuntu", "switchboard")
FOOTNOTE_8 = {"ubuntu": "io-sample-min-k1", "switchboard": "io-sample-avg-k1"}
"""The hits that are looked up in the training text; Switchboard has next to no min-hits."""


def run_study(spec: StudySpec) -> int:
    """Runs the chosen parts, writes the page of all that is there, and says what is not."""
    folder = Path(spec.out)
    claim_folder(folder)
    size = SIZES[spec.size].limited(spec.limit)
    parts = egregious_parts(open_data(spec.data, folder), size, spec.restarts or size.restarts)
    return run_and_tell(parts, spec, "egregious", partial(write_page, spec=spec))


def egregious_parts(data: Data, size: Size, restarts: int) -> list[Part]:
    """Every part of the study, in an order in which they can run."""
    return [
        *_training(data, size),
        *_searches(data, size, restarts),
        *_figures(data, size, restarts),
        *_characters(data, size),
        _whole_search(data, size),
        Part(
            "speed", (), partial(analysis.measure_speed, size=size), {"shapes": size.bench_shapes}, alone=True
        ),
    ]


def _training(data: Data, size: Size) -> list[Part]:
    """Table 2. The language model of a corpus goes into both of its dialogue models."""
    parts = []
    for corpus in CORPORA:
        source = data.sources[corpus]
        for arch in ("lm", *ARCHS):
            settings = training_settings(train_spec(source, size, arch)) | {"data": data.kind}
            run = partial(train_network, source=source, size=size, arch=arch)
            needs = () if arch == "lm" else (f"train-{corpus}-lm",)
            owns = (model_name(corpus, arch),)
            parts.append(Part(f"train-{corpus}-{arch}", needs, run, settings, source.files, owns))
    return parts


def _searches(data: Data, size: Size, restarts: int) -> list[Part]:
    """Tables 3, 4 and 11."""
    parts = []
    for corpus in CORPORA:
        for arch in ARCHS:
            asked = [(name, hit) for name in ("mal", "random") for hit in THREE_HITS]
            for name, hit in [("normal", NORMAL_HIT[corpus]), *asked]:
                title = f"search-{corpus}-{arch}-{name}-{hit}"
                settings = search_settings(size, hit, restarts)
                run = partial(
                    run_search,
                    data=data,
                    size=size,
                    corpus=corpus,
                    arch=arch,
                    list_name=name,
                    settings=settings,
                )
                files = {"mal": (data.prototypes,), "normal": data.sources[corpus].files, "random": ()}[name]
                counted = settings | {"targets": getattr(size, name)}
                parts.append(Part(title, (f"train-{corpus}-{arch}",), run, counted, files, _owned(title)))
    return parts


def _whole_search(data: Data, size: Size) -> Part:
    """One search of the paper with all its restarts, to be timed alone, and what each restart adds."""
    title, settings = "whole-search", search_settings(size, "o-sample-min-k1")
    run = partial(
        run_search,
        data=data,
        size=size,
        corpus="switchboard",
        arch="last-h",
        list_name="mal",
        settings=settings,
    )
    counted = settings | {"targets": size.mal}
    return Part(title, ("train-switchboard-last-h",), run, counted, (data.prototypes,), _owned(title))


def _figures(data: Data, size: Size, restarts: int) -> list[Part]:
    """Table 1 with figures 2 and 3, footnote 8, figures 4a, 4b and 5, and the precision of a search."""
    ubuntu, mal = data.sources["ubuntu"].files, data.prototypes
    curves = tuple(
        f"search-{corpus}-last-h-{name}-io-sample-min-k1"
        for corpus in CURVE_CORPORA
        for name in ("mal", "random")
    )
    words = {corpus: f"search-{corpus}-attention-mal-io-sample-min-k1" for corpus in CURVE_CORPORA}
    one_search = search_settings(size, "io-sample-min-k1", 1)
    counted = {"top": size.tries, "normal": size.normal, "mal": size.mal, "of": analysis.TRIED}
    tries = search_settings(size, "o-greedy", restarts) | counted
    precision = search_settings(size, "o-sample-min-k1", 1) | {"targets": size.precision_targets}
    curve_files = (*ubuntu, *data.sources["switchboard"].files)
    trained = ("train-switchboard-last-h", "train-switchboard-attention")
    return [
        *(
            Part(
                f"relax-{run}",
                (f"train-{settings.corpus}-attention",),
                partial(relax_targets, data=data, size=size, run=run),
                relax_settings(size, run),
                (*data.sources[settings.corpus].files, mal),
            )
            for run, settings in RUNS.items()
        ),
        Part(
            "footnote-8",
            tuple(f"search-{corpus}-{arch}-mal-io-sample-min-k1" for corpus in FOOTNOTE_8 for arch in ARCHS),
            partial(analysis.look_up_hits, data=data, asked=FOOTNOTE_8),
            FOOTNOTE_8,
            curve_files,
        ),
        Part(
            "curves",
            curves,
            partial(analysis.draw_curves, data=data, size=size, corpora=CURVE_CORPORA),
            one_search | {"targets": size.curve_targets},
            curve_files,
            tuple(name for corpus in CURVE_CORPORA for name in _owned(f"curves-{corpus}-normal")),
        ),
        Part(
            "tries",
            ("train-ubuntu-last-h", "train-switchboard-last-h"),
            partial(analysis.count_tries, data=data, size=size, restarts=restarts),
            tries,
            (*ubuntu, mal),
            tuple(
                name
                for corpus in analysis.TRIED
                for top in size.tries
                for name in _owned(f"tries-{corpus}-{top}")
            ),
        ),
        Part("words", tuple(words.values()), partial(analysis.show_words, searches=words)),
        Part(
            "precision",
            trained,
            partial(analysis.compare_precisions, data=data, size=size),
            precision,
            (mal,),
            tuple(
                name
                for arch in ARCHS
                for precision in analysis.PRECISIONS
                for name in _owned(f"precision-{arch}-{precision}")
            ),
        ),
    ]


def _characters(data: Data, size: Size) -> list[Part]:
    """Tables 5, 6 and 7: every input of the character task, then as many at random as the paper's
    percentages imply."""
    source, parts = data.characters, []
    for arch in ARCHS:
        settings = training_settings(train_spec(source, size, arch)) | {"data": data.kind}
        train = partial(train_network, source=source, size=size, arch=arch)
        owns = (model_name("characters", arch),)
        parts.append(Part(f"train-characters-{arch}", (), train, settings, source.files, owns))
    for name, sample in (("enumerate", 0), ("sample", size.sample)):
        for arch in ARCHS:
            run = partial(enumerate_inputs, data=data, size=size, arch=arch, sample=sample)
            space: dict[str, Any] = {
                "length": size.input_length,
                "symbols": size.symbols,
                "sample": sample,
            }
            needs, title = (f"train-characters-{arch}",), f"{name}-{arch}"
            parts.append(Part(title, needs, run, space, source.files, (f"enumerations/{title}",)))
    return parts


def _owned(search: str) -> tuple[str, ...]:
    return (f"runs/{search}", f"lists/{search}.jsonl")
