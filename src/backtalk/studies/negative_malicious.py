"""Table 3: a baseline and its hardened models against malicious targets, each row a hardening of its own.

`harden` gets the lists as they are, keeps the last iteration, as the paper does, and audits nothing: here the
baseline is measured once, and every model on the same two lists, the 500 written training targets and the
test targets. Test targets searched after each iteration only draw the way there.

Training searches lower the average of all words, as eq. 7 of the paper does. The measures weigh words as
eq. 6 of He & Glass 2019 does, since the code that measures in the public repository does so for every list;
the test targets are also searched by the average, which finds half as many again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backtalk.models.folder import load_folder
from backtalk.models.local import LocalModel
from backtalk.studies.egregious_data import SEED
from backtalk.studies.egregious_search import search
from backtalk.studies.hardenings import run_harden, told
from backtalk.studies.negative_data import NegativeData, known_targets, open_baseline, write_list
from backtalk.studies.negative_sizes import Size
from backtalk.studies.parts import Result, Workplace
from backtalk.types import Target

MEASURED = {"train": "500", "test": "test"}
"""The lists that every model is measured on."""
OWN = "own"
"""The test list once more, by our own search."""
EXTRA: dict[str, tuple[str, dict[str, Any]]] = {
    "500-no-fwa": ("500", {"avoid": "none"}),
    "500-sentences": ("500", {"mean_over": "sentences"}),
    "500-hits": ("500", {"average": "hits"}),
    "500-default": ("500", {"settings": "default"}),
    "1000-default": ("1000", {"settings": "default"}),
    "2500-default": ("2500", {"settings": "default"}),
    "500-unlikelihood": ("500", {"settings": "default", "method": "unlikelihood"}),
    "500-npo": ("500", {"settings": "default", "method": "npo"}),
}
"""Our own rows: the training list, and what is set over the paper's settings."""


def row_settings(size: Size, corpus: str, hit: str, over: Mapping[str, Any]) -> dict[str, Any]:
    """What a row's result depends on, as `harden` takes it."""
    return {
        "hit": hit,
        "settings": corpus,
        "iterations": size.iterations,
        "keep": "last",
        "batch": size.batch,
        "rounds": size.rounds,
        "length": size.length,
        "top": size.top,
        "search_sweeps": size.sweeps,
        "sweeps": size.sweeps,
        "measure": size.measure,
        "seed": SEED,
        **over,
    }


def measure_settings(size: Size, hit: str) -> dict[str, Any]:
    """The audit of both lists; its seed is none that training used."""
    sizes = {"length": size.length, "top": size.top, "sweeps": size.sweeps, "restarts": size.restarts}
    return {"search": "gibbs", "hit": hit, **sizes, "as_published": True, "seed": SEED + 1}


def own_settings(size: Size, hit: str) -> dict[str, Any]:
    """Our own search of the test list: the average of all words, from one start."""
    return measure_settings(size, hit) | {"as_published": False, "restarts": 1}


def measure_baseline(place: Workplace, data: NegativeData, size: Size, corpus: str, hit: str) -> Result:
    model = open_baseline(place, data.sources[corpus])
    return {"corpus": corpus, "hit": hit, "lists": _measure(place, data, size, model, model, hit)}


def harden_row(
    place: Workplace, data: NegativeData, size: Size, corpus: str, list_name: str, settings: Mapping[str, Any]
) -> Result:
    baseline = open_baseline(place, data.sources[corpus])
    known = {name: known_targets(data, size, baseline, name) for name in (list_name, "test")}
    files = {
        "targets": write_list(place, f"{place.part}-train", known[list_name].targets),
        "selection": write_list(
            place, f"{place.part}-followed", evenly(known["test"].targets, size.followed)
        ),
        "held_out": write_list(place, f"{place.part}-test", known["test"].targets),
    }
    values = {**settings, **{key: str(path) for key, path in files.items()}, "model": baseline.name}
    summary = run_harden(place, {**values, "audits": False})
    hardened = load_folder(str(place.path("hardenings", place.part, "model")), place.device)
    hit = settings["hit"]
    return {
        "corpus": corpus,
        "hit": hit,
        "list": list_name,
        "trained_on": len(known[list_name].targets),
        "left_out": known[list_name].left_out,
        "lists": _measure(place, data, size, baseline, hardened, hit),
        **told(summary),
    }


def evenly(targets: Sequence[Target], count: int) -> list[Target]:
    """So many of a list at equal distances: its beginning may be shorter sentences than its end."""
    return (
        [targets[i * len(targets) // count] for i in range(count)] if count < len(targets) else list(targets)
    )


def _measure(
    place: Workplace, data: NegativeData, size: Size, baseline: LocalModel, model: LocalModel, hit: str
) -> Result:
    """Both lists, as far as the baseline can say them, and the second by our own search."""
    found: Result = {}
    asked = {name: (list_name, measure_settings(size, hit)) for name, list_name in MEASURED.items()}
    asked[OWN] = (MEASURED["test"], own_settings(size, hit))
    for name, (list_name, settings) in asked.items():
        known = known_targets(data, size, baseline, list_name)
        result = search(place, f"{place.part}-{name}", model, known.targets, settings)
        found[name] = {
            "n": result["n"],
            "left_out": known.left_out,
            "rate": result["hits"].get(hit),
            "hit": sorted(case for case, one in result["targets"].items() if hit in one["hits"]),
            "candidates": result.get("candidates", 0),
            "seconds": result.get("seconds", 0.0),
        }
    return found
