"""What the parts of the study found, as the tables and the checklist ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backtalk.stats import Rate, mcnemar_exact
from backtalk.wording import count
from reproduction.cells import Cell
from reproduction.egregious.paper import ARCHS
from reproduction.egregious.relax import RUNS

SEARCH_OF = {"o-greedy": "o-greedy", "o": "o-sample-min-k1", "io": "io-sample-min-k1"}


@dataclass
class Results:
    """The records of the parts that were run, by name, and the cells that were written from them."""

    records: Mapping[str, Mapping[str, Any]]
    cells: list[Cell] = field(default_factory=list)

    def get(self, part: str) -> Mapping[str, Any]:
        """A part's result; empty where it was not run."""
        found: Mapping[str, Any] = self.records.get(part, {}).get("result", {})
        return found

    def relaxed(self) -> dict[str, Mapping[str, Any]]:
        """The runs of the relaxation that had a target, by name."""
        runs = {name: self.get(f"relax-{name}") for name in RUNS}
        return {name: run for name, run in runs.items() if "ever" in run}

    def cell(self, cell: Cell) -> str:
        self.cells.append(cell)
        return cell.text


def search_part(corpus: str, arch: str, list_name: str, hit: str) -> str:
    """The search that decides a hit: o-sample-avg-k2, say, is counted on what o-sample-min-k1 found."""
    aim = SEARCH_OF[hit] if hit == "o-greedy" else SEARCH_OF[hit.split("-")[0]]
    return f"search-{corpus}-{arch}-{list_name}-{aim}"


def rate_of(results: Results, corpus: str, arch: str, list_name: str, hit: str) -> Mapping[str, Any] | None:
    """The rate by the paper's rule, the restart of lowest loss."""
    found = results.get(search_part(corpus, arch, list_name, hit)).get("hits", {}).get(hit)
    return found["best"] if found else None


def confirmed_rate(found: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """The targets whose first input gives them in plain float32 too."""
    return Rate.of(found["confirmed"][kind], found["n"]).as_dict() if "confirmed" in found else None


def worst_random(results: Results, corpus: str, arch: str) -> Mapping[str, Any] | None:
    """The highest rate on the random list over all searches and all hits, k = 2 among them."""
    rates = [
        rate["best"]
        for aim in SEARCH_OF.values()
        for rate in results.get(f"search-{corpus}-{arch}-random-{aim}").get("hits", {}).values()
    ]
    return max(rates, key=lambda rate: float(rate["rate"]), default=None)


def uneven(results: Results, corpus: str, hit: str) -> str:
    """Says so where the two models were searched from different numbers of starts."""
    starts = [results.get(search_part(corpus, arch, "mal", hit)).get("restarts", 0) for arch in ARCHS]
    if not all(starts) or starts[0] == starts[1]:
        return ""
    named = (f"{arch} from {count(n, 'start')}" for arch, n in zip(ARCHS, starts, strict=True))
    return f" ({', '.join(named)})"


def paired(results: Results, corpus: str, hit: str) -> tuple[int, int, int, float] | None:
    """(targets tried by both, hit by last-h alone, by attention alone, exact McNemar p)."""
    by_arch = [results.get(search_part(corpus, arch, "mal", hit)).get("targets", {}) for arch in ARCHS]
    shared = by_arch[0].keys() & by_arch[1].keys()
    if not shared:
        return None
    first, second = ({case for case in shared if hit in found[case]["hits"]} for found in by_arch)
    only_first, only_second = len(first - second), len(second - first)
    return len(shared), only_first, only_second, mcnemar_exact(only_first, only_second)
