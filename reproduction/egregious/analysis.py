"""Tables 5 to 7, footnote 8, figures 4a, 4b and 5, and our own two questions: does the precision matter, how
fast is it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.search import SHAPES, Shape, bench_search

from backtalk.data.targets import read_targets
from backtalk.data.tokenise import get_recipe
from backtalk.hits import parse_criterion
from backtalk.models.lstm.model import LocalModel
from backtalk.scorers.likelihood import score_triggers
from backtalk.stats import Rate
from backtalk.store import Run
from reproduction.egregious.data import SEED, Data, model_name, normal_targets
from reproduction.egregious.paper import ARCHS, Size
from reproduction.egregious.search import CURVE_TARGETS, list_targets, open_model, search, search_settings
from reproduction.enumeration.flow import enumerate_model
from reproduction.page import Result
from reproduction.runner import Workplace
from reproduction.spec import EnumerateSpec

BENCHED = SHAPES | {"mini": Shape(404, 16, 24, length=4, target=4, top=8)}
TRIED = {
    "ubuntu": ("normal", "o-greedy", "o-greedy"),
    "switchboard": ("mal", "o-sample-min-k1", "o-sample-avg-k1"),
}
"""(list, what the search aims at, the hit that is counted) in figure 4b."""
PRECISIONS = ("float32", "bfloat16")
PRECISE = ("o-sample-avg-k1", "o-sample-avg-k2", "o-sample-min-k1")
SHOWN_WORDS = 5  # sentences in a row of figure 5


def look_up_hits(place: Workplace, data: Data, asked: dict[str, str]) -> Result:
    """Footnote 8: of the hit targets, those whose words stand side by side in some training utterance.

    `asked` names the criterion for each corpus: the paper's min-hits, or avg-hits where there are none.
    """
    corpora: Result = {}
    for corpus, criterion in asked.items():
        source = data.sources[corpus]
        words = get_recipe(source.recipe).words
        utterances = {turn.text for dialogue in source.train_corpus().dialogues for turn in dialogue}
        text = "\n".join(f" {' '.join(words(utterance))} " for utterance in utterances)
        rows = {}
        for arch in ARCHS:
            part = f"search-{corpus}-{arch}-mal-io-sample-min-k1"
            hit = {case for case, row in place.result(part)["targets"].items() if criterion in row["hits"]}
            file = place.path("lists", f"{part}.jsonl")
            targets = [target for target in read_targets(file) if target.id in hit] if hit else []
            there = [target for target in targets if f" {' '.join(words(target.text))} " in text]
            rows[part] = {"criterion": criterion, "present": Rate.of(len(there), len(targets)).as_dict()}
        corpora[corpus] = {"utterances": len(utterances), "searches": rows}
    return {"corpora": corpora}


def draw_curves(place: Workplace, data: Data, size: Size, corpora: tuple[str, ...]) -> Result:
    """Figure 4a: the output part of the loss by sweep. Two lists were searched before, normal is now."""
    curves: Result = {}
    counts: Result = {}
    for corpus in corpora:
        model = open_model(place, corpus, "last-h")
        targets = normal_targets(data.sources[corpus], model, size.curve_targets)
        settings = search_settings(size, "io-sample-min-k1", 1)
        found = {
            "normal": search(place, f"curves-{corpus}-normal", model, targets, settings),
            "mal": place.result(f"search-{corpus}-last-h-mal-io-sample-min-k1"),
            "random": place.result(f"search-{corpus}-last-h-random-io-sample-min-k1"),
        }
        curves[corpus] = {name: result.get("output_loss_by_sweep", []) for name, result in found.items()}
        counts[corpus] = {name: min(CURVE_TARGETS, result.get("n", 0)) for name, result in found.items()}
    return {"targets": counts, "curves": curves}


def count_tries(place: Workplace, data: Data, size: Size) -> Result:
    """Figure 4b: o-greedy on the normal list of Ubuntu, last-h, by G and by restarts counted from one run;
    and avg-hits on the mal list of Switchboard the same way, as a slice has few normal replies."""
    found: Result = {}
    for corpus, (list_name, aim, counted) in TRIED.items():
        model = open_model(place, corpus, "last-h")
        targets = list_targets(data, size, model, corpus, list_name)
        rows: Result = {}
        for top in size.tries:
            settings = search_settings(size, aim, size.searched, top)
            result = search(place, f"tries-{corpus}-{top}", model, targets, settings)
            rows[str(top)] = {r: hits[counted] for r, hits in result.get("by_restarts", {}).items()}
        found[corpus] = {"n": len(targets), "list": list_name, "hit": counted, "by_tries": rows}
    return found


def show_words(place: Workplace, searches: dict[str, str]) -> Result:
    """Figure 5: word by word, how unlikely some targets of our own list are after their triggers."""
    rows: Result = {}
    for corpus, part in searches.items():
        found = place.result(part)
        sentences = [
            {"words": [*one["words"], "<eos>"], "nll": [-value for value in one["token_log_probs"]]}
            for one in found["own"][:SHOWN_WORDS]
        ]
        rows[corpus] = {"T_out": found.get("thresholds", {}).get("T_out"), "sentences": sentences}
    return rows


def compare_precisions(place: Workplace, data: Data, size: Size) -> Result:
    """The same search in float32 and with a bfloat16 draft: do they hit the same targets? And on the draft's
    triggers: does bfloat16 itself call the same ones hits? Hits are always decided in float32."""
    agree: Result = {}
    verdicts: Result = {}
    for arch in ARCHS:
        model = open_model(place, "switchboard", arch)
        targets = list_targets(data, size, model, "switchboard", "mal")[: size.precision_targets]
        settings = search_settings(size, "o-sample-min-k1", 1)
        full, half = (
            search(place, f"precision-{arch}-{precision}", model, targets, settings, precision)["targets"]
            for precision in PRECISIONS
        )
        agree[arch] = {
            name: _agreement([(name in full[case]["hits"], name in half[case]["hits"]) for case in full])
            for name in PRECISE
        }
        verdicts[arch] = _verdicts(place.path("runs", f"precision-{arch}-{PRECISIONS[1]}"), model)
    return {"precisions": list(PRECISIONS), "agree": agree, "verdicts": verdicts}


def _verdicts(folder: Path, model: LocalModel) -> Result:
    with Run.open(folder) as run:
        findings, thresholds = [f for f in run.findings() if f.status == "found"], run.thresholds
    goals = [model.encode_target(finding.target) for finding in findings]
    coarse = score_triggers(model.draft(), [finding.turns[0].ids for finding in findings], goals)
    scored = [replace(one, scores=own.scores) for one, own in zip(findings, coarse, strict=True)]
    agree = {}
    for name in PRECISE:
        holds = parse_criterion(name).holds
        both = zip(findings, scored, strict=True)
        agree[name] = _agreement([(holds(one, thresholds), holds(own, thresholds)) for one, own in both])
    return agree


def _agreement(pairs: Sequence[tuple[bool, bool]]) -> Result:
    return Rate.of(sum(first == second for first, second in pairs), len(pairs)).as_dict()


def measure_speed(place: Workplace, size: Size) -> Result:
    """Candidates a second at the paper's shapes, beside the ceiling of plain matrix products."""
    rows = [
        {"shape": shape, "arch": arch, **asdict(row)}
        for shape, arch in size.bench_shapes
        for row in bench_search(BENCHED[shape], arch == "attention", place.device)
    ]
    return {"rows": rows}


SHOWN_LISTS = {"random", "mal"}  # lists whose examples may be shown: the other two are the corpus' words


def enumerate_inputs(place: Workplace, data: Data, arch: str, space: Mapping[str, Any]) -> Result:
    model, text = str(place.path(model_name("characters", arch))), str(data.characters.data)
    spec = EnumerateSpec(model=model, text=text, seed=SEED, device=place.device, **space)
    summary = enumerate_model(spec, place.path("enumerations", place.part))
    for name, found in summary["lists"].items():
        if name not in SHOWN_LISTS:
            found["examples"] = []
    return {key: value for key, value in summary.items() if key != "model"} | {"arch": arch}
