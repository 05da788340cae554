"""`python -m reproduction egregious`: He & Glass 2019 from training to its last figure, as parts."""

from functools import partial
from pathlib import Path
from typing import Any

from reproduction.egregious import analysis
from reproduction.egregious.data import Data, Source, model_name, open_data, train_network, train_settings
from reproduction.egregious.page import page_lines
from reproduction.egregious.paper import ARCHS, CORPORA, NORMAL_HIT, SIZES, Size
from reproduction.egregious.relax import CONTROLS, RUNS, relax_targets
from reproduction.egregious.search import run_search, search_settings
from reproduction.page import Result
from reproduction.runner import Part, Study
from reproduction.spec import StudySpec

THREE_HITS = ("o-greedy", "o-sample-min-k1", "io-sample-min-k1")
"""The three searches that fill a row of Tables 3 and 11: every other hit is decided on what they find."""
CURVE_CORPORA = ("ubuntu", "switchboard")
FOOTNOTE_8 = {"ubuntu": "io-sample-min-k1", "switchboard": "io-sample-avg-k1"}
"""The hits that are looked up in the training text; Switchboard has next to no min-hits."""


def egregious_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    data = open_data(spec.data, folder)
    return [
        *(part for corpus in CORPORA for part in train_parts(data.sources[corpus], data.kind, size)),
        *(
            _search(data, size, corpus, arch, name, hit)
            for corpus in CORPORA
            for arch in ARCHS
            for name, hits in (("normal", [NORMAL_HIT[corpus]]), ("mal", THREE_HITS), ("random", THREE_HITS))
            for hit in hits
        ),
        *_figures(data, size),
        *_characters(data, size),
        # One search of the paper with all its restarts: its time, and what each restart adds.
        _search(data, size, "switchboard", "last-h", "mal", "o-sample-min-k1", "whole-search"),
        Part("speed", (), partial(analysis.measure_speed, size=size), {"shapes": size.bench_shapes}),
    ]


def train_parts(source: Source, kind: str, size: Size, archs: tuple[str, ...] = ARCHS) -> list[Part]:
    """Table 2. The language model of a corpus goes into its dialogue models."""
    parts, corpus = [], source.corpus
    for arch in archs if corpus == "characters" else ("lm", *archs):
        settings = train_settings(source, size, arch) | {"data": kind}
        run = partial(train_network, source=source, size=size, arch=arch)
        needs = () if arch == "lm" or corpus == "characters" else (f"train-{corpus}-lm",)
        owns = (model_name(corpus, arch),)
        parts.append(Part(f"train-{corpus}-{arch}", needs, run, settings, source.files, owns))
    return parts


def _search(data: Data, size: Size, corpus: str, arch: str, name: str, hit: str, title: str = "") -> Part:
    settings = search_settings(size, hit, 0 if title else size.searched)
    title = title or f"search-{corpus}-{arch}-{name}-{hit}"
    run = partial(
        run_search, data=data, size=size, corpus=corpus, arch=arch, list_name=name, settings=settings
    )
    files = {"mal": (data.prototypes,), "normal": data.sources[corpus].files, "random": ()}[name]
    counted = settings | {"targets": getattr(size, name)}
    return Part(title, (f"train-{corpus}-{arch}",), run, counted, files, _owned(title))


def _figures(data: Data, size: Size) -> list[Part]:
    ubuntu, mal = data.sources["ubuntu"].files, (data.prototypes,)
    both = (*ubuntu, *data.sources["switchboard"].files)
    last_h = "search-{}-last-h-{}-io-sample-min-k1"
    curves = tuple(last_h.format(corpus, name) for corpus in CURVE_CORPORA for name in ("mal", "random"))
    looked_up = tuple(
        f"search-{corpus}-{arch}-mal-io-sample-min-k1" for corpus in FOOTNOTE_8 for arch in ARCHS
    )
    words = {corpus: f"search-{corpus}-attention-mal-io-sample-min-k1" for corpus in CURVE_CORPORA}
    counted = {"top": size.tries, "normal": size.normal, "mal": size.mal, "of": analysis.TRIED}
    tries = search_settings(size, "o-greedy", size.searched) | counted
    curve = search_settings(size, "io-sample-min-k1", 1) | {"targets": size.curve_targets}
    precise = search_settings(size, "o-sample-min-k1", 1) | {"targets": size.precision_targets}
    relaxation = size.some("length", "mal", "normal") | {"steps": size.relax_steps, "controls": CONTROLS}
    run = partial(partial, data=data)
    parts = []
    for name, one in RUNS.items():
        relax, files = run(relax_targets, size=size, run=name), (*data.sources[one.corpus].files, *mal)
        needs = (f"train-{one.corpus}-attention",)
        parts.append(Part(f"relax-{name}", needs, relax, relaxation | {"run": one}, files))
    draw = run(analysis.draw_curves, size=size, corpora=CURVE_CORPORA)
    compare = run(analysis.compare_precisions, size=size)
    drawn = _owned(*(f"curves-{corpus}-normal" for corpus in CURVE_CORPORA))
    tried = _owned(*(f"tries-{corpus}-{top}" for corpus in analysis.TRIED for top in size.tries))
    compared = _owned(*(f"precision-{arch}-{one}" for arch in ARCHS for one in analysis.PRECISIONS))
    last_hs = ("train-ubuntu-last-h", "train-switchboard-last-h")
    return [
        *parts,
        Part("footnote-8", looked_up, run(analysis.look_up_hits, asked=FOOTNOTE_8), FOOTNOTE_8, both),
        Part("curves", curves, draw, curve, both, drawn),
        Part("tries", last_hs, run(analysis.count_tries, size=size), tries, (*ubuntu, *mal), tried),
        Part("words", tuple(words.values()), partial(analysis.show_words, searches=words)),
        Part("precision", (last_hs[1], "train-switchboard-attention"), compare, precise, mal, compared),
    ]


def _characters(data: Data, size: Size) -> list[Part]:
    """Tables 5, 6 and 7: every input of the character task, then as many at random as the paper's
    percentages imply."""
    parts = train_parts(data.characters, data.kind, size)
    for name, sample in (("enumerate", 0), ("sample", size.sample)):
        for arch in ARCHS:
            space: dict[str, Any] = {"length": size.input_length, "symbols": size.symbols, "sample": sample}
            run = partial(analysis.enumerate_inputs, data=data, arch=arch, space=space)
            needs, title = (f"train-characters-{arch}",), f"{name}-{arch}"
            parts.append(Part(title, needs, run, space, data.characters.files, (f"enumerations/{title}",)))
    return parts


def _owned(*searches: str) -> tuple[str, ...]:
    return tuple(path for name in searches for path in (f"runs/{name}", f"lists/{name}.jsonl"))


def without_targets(result: Result) -> Result:
    """A search without the scores of each target, which stay in the study's folder: most of the file."""
    return {k: v for k, v in result.items() if k != "targets" or "hits" not in result}


STUDY = Study("egregious", SIZES, egregious_parts, page_lines, without_targets)
