"""The figures of He & Glass 2019 from the results of the parts: a section of the page and its SVG each."""

from __future__ import annotations

from pathlib import Path

from reproduction import figures
from reproduction.cells import percent, section, table
from reproduction.egregious.paper import TITLES
from reproduction.egregious.results import Results


def _picture(pictures: Path, name: str, words: str) -> list[str]:
    return [f"![{words}]({pictures.name}/{name})", "", f"*{words}*", ""]


def figure_2(results: Results, pictures: Path) -> list[str]:
    runs = [
        run
        for name in ("normal-one-hot-free", "normal-one-hot-light", "normal-one-hot")
        if (run := results.relaxed().get(name)) is not None
    ]
    if not runs:
        return section("Figure 2", ["Not run.", ""])
    panels = {
        f"λ_c = {run['lambda_c']:g}": dict(zip(("largest", "second largest"), run["largest"], strict=True))
        for run in runs
    }
    figures.histograms(pictures / "figure-2.svg", panels, runs[0]["edges"])
    words = "The largest and the second largest element of every relaxed one-hot vector after optimisation"
    return section("Figure 2", _picture(pictures, "figure-2.svg", words))


def figure_3(results: Results, pictures: Path) -> list[str]:
    panels = {
        f"λ_c = {run['lambda_c']:g}": {
            "encoder output": run["state_distance"],
            "embedding": run["embedding_distance"],
        }
        for name in ("normal-one-hot-light", "normal-one-hot")
        if (run := results.relaxed().get(name)) is not None
    }
    if not panels:
        return section("Figure 3", ["Not run.", ""])
    figures.lines(pictures / "figure-3.svg", panels, "position t", "2-norm of the difference", first=1)
    words = (
        "How far projection moves each word's embedding and the encoder's output after it, mean of 50 targets"
    )
    return section("Figure 3", _picture(pictures, "figure-3.svg", words))


def figure_4a(results: Results, pictures: Path) -> list[str]:
    found = results.get("curves")
    panels = {
        f"{TITLES[corpus]}, last-h": curves
        for corpus, curves in found.get("curves", {}).items()
        if any(curves.values())
    }
    if not panels:
        return section("Figure 4a", ["Not run.", ""])
    figures.lines(pictures / "figure-4a.svg", panels, "sweeps", "output part of the loss")
    words = "The output part of the loss by sweep, io-sample-min-k1, last-h"
    counts = [
        f"- {TITLES[corpus]}: mean of {', '.join(f'{n} {name}' for name, n in of.items())} targets."
        for corpus, of in found["targets"].items()
    ]
    return section("Figure 4a", [*_picture(pictures, "figure-4a.svg", words), *counts, ""])


def figure_4b(results: Results, pictures: Path) -> list[str]:
    lines: list[str] = []
    for corpus, found in results.get("tries").items():
        rows = {top: rates for top, rates in found["by_tries"].items() if rates}
        if rows:
            restarts = list(next(iter(rows.values())))
            bars = {f"r = {r}": [rates[r] for rates in rows.values()] for r in restarts}
            file = f"figure-4b-{corpus}.svg"
            figures.bars_by_group(pictures / file, list(rows), bars, "candidates tried at a position, G")
            words = (
                f"{found['hit']} hits on the {found['list']} list of {TITLES[corpus]} (last-h) "
                f"by G and restarts r, with 95% intervals"
            )
            header = ["G", *(f"r = {r}" for r in restarts)]
            body = [[top, *(percent(rates[r]) for r in restarts)] for top, rates in rows.items()]
            lines += [*_picture(pictures, file, words), *table(header, body)]
    return section("Figure 4b", lines or ["Not run.", ""])


def figure_5(results: Results, pictures: Path) -> list[str]:
    panels = {}
    for corpus, row in results.get("words").items():
        words = [pair for one in row["sentences"] for pair in zip(one["words"], one["nll"], strict=True)]
        if words:
            panels[f"{TITLES[corpus]}, attention"] = (words, -row["T_out"])
    if not panels:
        return section("Figure 5", ["No target of our own list was searched.", ""])
    figures.word_bars(pictures / "figure-5.svg", panels)
    words_shown = "Negative log-likelihood word by word of some targets of our own list, one after the other"
    return section("Figure 5", _picture(pictures, "figure-5.svg", words_shown))
