"""The figures of He & Glass 2019 from the results of the parts: a section of the page and its SVG each."""

from __future__ import annotations

from pathlib import Path

from backtalk.studies import figures
from backtalk.studies.cells import percent, section, table
from backtalk.studies.egregious_results import Results
from backtalk.studies.paper_2019 import TITLES


def _picture(pictures: Path, name: str, words: str) -> list[str]:
    return [f"![{words}]({pictures.name}/{name})", "", f"*{words}*", ""]


def figure_2(results: Results, pictures: Path) -> list[str]:
    found = results.get("relax")
    panels = {
        f"λ_c = {lambda_c}": dict(zip(("largest", "second largest"), run["largest"], strict=True))
        for lambda_c, name in ((0, "normal-one-hot-free"), (1, "normal-one-hot"))
        if (run := found.get("runs", {}).get(name, {})).get("largest")
    }
    if not panels:
        return section("Figure 2", ["Not run.", ""])
    figures.histograms(pictures / "figure-2.svg", panels, found["edges"])
    words = "The largest and the second largest element of every relaxed one-hot vector after optimisation"
    return section("Figure 2", _picture(pictures, "figure-2.svg", words))


def figure_3(results: Results, pictures: Path) -> list[str]:
    run = results.get("relax").get("runs", {}).get("normal-one-hot", {})
    if "state_distance" not in run:
        return section("Figure 3", ["Not run.", ""])
    curves = {"encoder output": run["state_distance"], "embedding": run["embedding_distance"]}
    figures.lines(pictures / "figure-3.svg", {"": curves}, "position t", "2-norm of the difference", first=1)
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
    words = f"Loss by sweep, io-sample-min-k1, mean of at most {found['targets']} targets of each list"
    return section("Figure 4a", _picture(pictures, "figure-4a.svg", words))


def figure_4b(results: Results, pictures: Path) -> list[str]:
    rows = {top: rates for top, rates in results.get("tries").get("by_tries", {}).items() if rates}
    if not rows:
        return section("Figure 4b", ["Not run.", ""])
    restarts = list(next(iter(rows.values())))
    bars = {f"r = {r}": [rates[r] for rates in rows.values()] for r in restarts}
    figures.bars_by_group(pictures / "figure-4b.svg", list(rows), bars, "candidates tried at a position, G")
    words = "o-greedy hits on the normal list of Ubuntu (last-h) by G and restarts r, with 95% intervals"
    header = ["G", *(f"r = {r}" for r in restarts)]
    body = [[top, *(percent(rates[r]) for r in restarts)] for top, rates in rows.items()]
    return section("Figure 4b", [*_picture(pictures, "figure-4b.svg", words), *table(header, body)])


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
