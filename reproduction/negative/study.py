"""`python -m reproduction negative`: He & Glass 2020 from training to its last table, as a list of parts."""

from functools import partial
from pathlib import Path
from typing import Any

from reproduction.egregious.data import SEED
from reproduction.egregious.study import train_parts
from reproduction.hardenings import defaults_left
from reproduction.negative import frequent, malicious, paper
from reproduction.negative.curve import METHODS
from reproduction.negative.data import ARCH, NegativeData, open_negative_data
from reproduction.negative.frequent import COPIES, DESCRIBED
from reproduction.negative.malicious import EXTRA, MEASURED, OURS, PASSES, row_part
from reproduction.negative.page import page_lines
from reproduction.negative.paper import BASELINE, CORPORA, HITS, LISTS, SIZES, Size
from reproduction.negative.words import MODELS, follow_words, show_samples
from reproduction.runner import Part, Study
from reproduction.spec import EMBEDDED, StudySpec

FREQUENT_EMBEDDED = "frequent-embedded-negative-1"


def negative_parts(spec: StudySpec, size: Size, folder: Path) -> list[Part]:
    data = open_negative_data(spec.data, folder)
    sources = [data.sources[corpus] for corpus in CORPORA]
    return [
        # Table 8
        *(part for one in sources for part in train_parts(one, data.kind, size.training, (ARCH,))),
        *_malicious(data, size),
        *_as_2019(data, size),
        *_frequent(data, size),
        *_embedded(data, size),
        _words(data, size),
    ]


def _malicious(data: NegativeData, size: Size) -> list[Part]:
    parts, tests, measure = [], _tests(data), partial(malicious.measure_row, data=data, size=size)
    ours = {name: (listed, over) for name, (listed, _, over) in EXTRA.items()}
    ours[PASSES] = ("500", {"iterations": size.passes})
    for corpus in CORPORA:
        needs = (f"train-{corpus}-{ARCH}",)
        for hit in HITS[corpus]:
            measured = _measured(size, hit)
            rows: dict[str, tuple[str, dict[str, Any]]] = {name: (name, {}) for name in LISTS}
            rows |= {name: ours[name] for name in malicious.extra_rows(corpus, hit)}
            baseline = partial(measure, corpus=corpus, hit=hit, row=BASELINE)
            name = row_part(corpus, hit, BASELINE)
            parts.append(Part(name, needs, baseline, measured, tests, _runs(name)))
            for row, (listed, over) in rows.items():
                name, settings = row_part(corpus, hit, row), malicious.row_settings(size, corpus, hit, over)
                followed = size.followed if row in METHODS and (corpus, hit) == OURS else 1
                run = partial(malicious.harden_row, data=data, size=size, corpus=corpus, list_name=listed)
                kept = settings | measured | {"followed": followed}
                kept |= {"default": defaults_left(settings)} if settings["settings"] == "default" else {}
                files = (*data.sources[corpus].files, *tests, data.lists[listed])
                run = partial(run, followed=followed, settings=settings)
                parts.append(Part(name, needs, run, kept, files, (f"hardenings/{name}", *_runs(name))))
    return parts


def _measured(size: Size, hit: str, **over: bool) -> dict[str, Any]:
    how = {"precision": malicious.PRECISION, "dropout_draws": malicious.DRAWS, "limits": dict(size.targets)}
    return {"audit": malicious.measure_settings(size, hit) | over, **how}


def _as_2019(data: NegativeData, size: Size) -> list[Part]:
    (corpus, hit), older = OURS, malicious.OLDER
    measured, tests = _measured(size, hit, **older), _tests(data)
    measure = partial(malicious.measure_row, data=data, size=size, corpus=corpus, hit=hit, over=older)
    parts = []
    for row in malicious.OLDER_ROWS:
        name, needs = malicious.older_part(row), (row_part(corpus, hit, row),)
        parts.append(Part(name, needs, partial(measure, row=row), measured, tests, _runs(name)))
    return parts


def _frequent(data: NegativeData, size: Size) -> list[Part]:
    """Tables 4 and 9: decoding, the GAN at three rates and its control, negative training at two thresholds;
    and for Switchboard other scales of <eos>. All trainings have as many mini-batches."""
    steps: dict[str, Any] = {"against": "frequent", "keep": "last", "measure": size.measure, "seed": SEED}
    steps |= {"iterations": size.frequent_iterations, "steps_per_iteration": size.frequent_steps}
    parts = []
    for corpus in CORPORA:
        start, needs, files = f"frequent-{corpus}", (f"train-{corpus}-{ARCH}",), data.sources[corpus].files
        told = DESCRIBED | {"measure": size.measure, "beam": size.beam, "inputs": size.beam_inputs}
        run = partial(frequent.describe_baseline, data=data, size=size, corpus=corpus)
        parts.append(Part(f"{start}-{BASELINE}", needs, run, told, files))
        grid = {"weights": size.mmi_weights, "words": size.mmi_words, "choosing": size.choosing}
        run = partial(frequent.describe_mmi, data=data, size=size, corpus=corpus)
        kept = DESCRIBED | frequent.MMI_RULE | grid | {"measure": size.measure}
        parts.append(Part(f"{start}-mmi", needs, run, kept, files))
        judge = size.some("gan_filters", "gan_hidden") | {"method": "gan"}
        rows = {f"gan-{alpha}": judge | {"gan_lr": float(alpha)} for alpha in (*paper.ALPHA_G, "0")}
        shares = {f"negative-{share[:-1]}": (share, 0.1) for share in paper.R_THRES[corpus]}
        if corpus == OURS[0]:
            shares |= {f"negative-1-eos-{scale}": ("1%", float(scale)) for scale in paper.EOS_SCALES}
        for row, (share, scale) in shares.items():
            rows[row] = {"r_thres": share, "eos_scale": scale, "window": size.window}
        for row, over in rows.items():
            name, settings = f"{start}-{row}", steps | over
            train = partial(frequent.harden_frequent_row, data=data, corpus=corpus, settings=settings)
            parts.append(Part(name, needs, train, DESCRIBED | settings, files, (f"hardenings/{name}",)))
    return parts


def _embedded(data: NegativeData, size: Size) -> list[Part]:
    """Paraphrases, and the samples of Tables 5 and 10 to 13: the embedded model, whatever the data. Its own
    corpus keeps it whole or, with embedded data, the shipped pairs."""
    parts = []
    pairs = str(data.sources[OURS[0]].data) if data.kind == EMBEDDED else ""
    for copies in COPIES:
        name, settings = f"augment-embedded-{copies}", {**dict(size.embedded), "seed": SEED}
        settings |= {"augment": copies, "paraphraser": "rules"} if copies else {}
        run = partial(frequent.harden_embedded, settings=settings, pairs=pairs)
        kept = settings | {"default": defaults_left(settings), "data": data.kind}
        parts.append(Part(name, (), run, kept, owns=(f"hardenings/{name}",)))
    settings = {"against": "frequent", **dict(size.embedded_frequent), "seed": SEED}
    run = partial(frequent.harden_embedded_frequent, settings=settings, pairs=pairs)
    kept, owns = settings | {"data": data.kind}, (f"hardenings/{FREQUENT_EMBEDDED}",)
    parts.append(Part(FREQUENT_EMBEDDED, (), run, kept, owns=owns))
    needs = ("augment-embedded-0", FREQUENT_EMBEDDED)
    samples = partial(show_samples, against_targets=needs[0], against_frequent=needs[1])
    return [*parts, Part("samples", needs, samples)]


def _words(data: NegativeData, size: Size) -> Part:
    corpus, hit = OURS
    needs = tuple(row_part(corpus, hit, row) for row in MODELS.values() if row != BASELINE)
    settings = {**malicious.measure_settings(size, hit), "restarts": 1, "targets": size.words}
    run = partial(follow_words, data=data, size=size, corpus=corpus, hit=hit)
    files, owns = data.sources[corpus].files, ("runs/words", "lists/words.jsonl")
    return Part("words", needs, run, settings, files, owns)


def _tests(data: NegativeData) -> tuple[Path, ...]:
    return tuple(data.lists[name] for name in MEASURED.values())


def _runs(part: str) -> tuple[str, ...]:
    return tuple(f"runs/{part}-{name}" for name in MEASURED)


STUDY = Study("negative", SIZES, negative_parts, page_lines)
