"""Tables 4 and 9 of He & Glass 2020, frequent replies, with rows that the paper does not have: the floor of
max-ratio, the control of the GAN, other scales of <eos>, and beam search."""

from __future__ import annotations

from collections.abc import Mapping

from reproduction.negative import paper
from reproduction.negative.frequent import CONTROL
from reproduction.negative.paper import ALPHA_G, BASELINE, CORPORA, R_THRES, TITLES
from reproduction.page import NOT_RUN, Cell, Found, Page, number, table

FLOOR = "floor"
COUNTED = (
    "max-ratio is the share of the commonest reply. Ent-2 and Ent-3 count the end token as a word, as the "
    "paper's code does, and of every reply, people's too, no more tokens than a model's reply may have (at "
    "the paper's size 20: 19 words and the end token). Words a reply and BLEU-4 are of whole replies without "
    "it."
)
BESIDE = (
    "*floor* is the share of the commonest test input: each of these decodings gives equal inputs equal "
    "replies, so no max-ratio of a model can be lower. Every GAN also trains on real replies; *its positive "
    "updates alone* are the same mini-batches without the generator's step. Every row is one training, and "
    "intervals are over test pairs, not over trainings."
)


def frequent_rows(page: Page, corpus: str) -> dict[str, Found]:
    """Every row that was run, by the paper's name or ours; of the GANs the best by validation pairs."""
    rows: dict[str, Found] = dict(page.get(f"frequent-{corpus}-{BASELINE}").get("rows", {}))
    if best := best_gan(page, corpus):
        rows["gan"] = best[1]["row"]
    for name in [CONTROL, "mmi", *_negative(corpus), "negative-1-eos-0", "negative-1-eos-1"]:
        if found := page.get(f"frequent-{corpus}-{name}"):
            rows[name] = found["row"]
    return rows


def best_gan(page: Page, corpus: str) -> tuple[str, Found] | None:
    """The rate of the generator whose last iteration has the lowest max-ratio on validation pairs."""
    found = {alpha: one for alpha in ALPHA_G if (one := page.get(f"frequent-{corpus}-gan-{alpha}"))}
    if not found:
        return None
    alpha = min(
        found, key=lambda alpha: found[alpha]["candidates"][-1]["hits"] / found[alpha]["candidates"][-1]["n"]
    )
    return alpha, found[alpha]


def table_4(page: Page) -> list[str]:
    lines: list[str] = [COUNTED, "", BESIDE, ""]
    for corpus in CORPORA:
        rows = frequent_rows(page, corpus)
        shown = [BASELINE, "gan", CONTROL, "mmi", *_negative(corpus)]
        ours = ("negative-1-eos-0", "negative-1-eos-1", "greedy beside beam", "beam")
        shown += [name for name in ours if name in rows]
        body = [
            _row(page, corpus, "test set", rows),
            _floor(page, corpus, rows),
            *(_row(page, corpus, name, rows) for name in shown),
        ]
        header = ["", "PPL", "max-ratio, %", "Ent-2", "Ent-3", "words a reply", "BLEU-4"]
        lines += [f"**{TITLES[corpus]}**", "", *table(header, body), *_chosen(page, corpus)]
    return lines


def _negative(corpus: str) -> list[str]:
    return [f"negative-{share[:-1]}" for share in R_THRES[corpus]]


def _row(page: Page, corpus: str, name: str, rows: Mapping[str, Found]) -> list[str]:
    key, found = f"table-4/{corpus}/{name}", rows.get(name, {})
    perplexity, ratio, *entropies = paper.TABLE_4.get((corpus, name), (None, None, None, None))
    cells = [page.cell(Cell(f"{key}/ppl", perplexity, found.get("perplexity"), digits=4))]
    if name in ("test set", "mmi", "beam", "greedy beside beam"):
        cells = [""]
    cells.append(page.cell(Cell.of_rate(f"{key}/max-ratio", ratio, found.get("max_ratio"))))
    for n, printed in zip((2, 3), entropies, strict=True):
        cells.append(page.cell(Cell(f"{key}/ent-{n}", printed, found.get(f"ent_{n}_eos"))))
    cells += [number(found.get("length")) if found else NOT_RUN, _bleu(corpus, name, found)]
    return [_title(name), *cells]


def _floor(page: Page, corpus: str, rows: Mapping[str, Found]) -> list[str]:
    floor = rows.get(BASELINE, {}).get("floor")
    cell = Cell.of_rate(f"table-4/{corpus}/{FLOOR}/max-ratio", None, floor)
    return [FLOOR, "", page.cell(cell), "", "", "", ""]


def _title(name: str) -> str:
    if not name.startswith("negative-"):
        titles = {"gan": "+GAN", CONTROL: "+the GAN's positive updates alone", "mmi": "+MMI"}
        return titles.get(name, name)
    share, _, scale = name.removeprefix("negative-").partition("-eos-")
    return f"+neg-train {share}%" + (f", `<eos>` scale {scale}" if scale else "")


def _bleu(corpus: str, name: str, found: Found) -> str:
    printed, ours = paper.TABLE_9.get((corpus, name)), found.get("bleu_4")
    shown = number(ours) if ours is not None else ("" if found else NOT_RUN)
    return f"{printed} \\| {shown}" if printed else shown


def _chosen(page: Page, corpus: str) -> list[str]:
    lines = []
    if best := best_gan(page, corpus):
        control = page.get(f"frequent-{corpus}-{CONTROL}")
        lines.append(
            f"- GAN: alpha_G {best[0]}, the lowest max-ratio on validation pairs at the end. By iteration it "
            f"was {_spread(best[1])} there; with the positive updates alone: {_spread(control)}."
        )
    if mmi := page.get(f"frequent-{corpus}-mmi"):
        lines.append(_chosen_mmi(mmi))
    return [*lines, ""]


def _chosen_mmi(mmi: Found) -> str:
    tried, setting = mmi["tried"], (mmi["weight"], mmi["words"])
    chosen = next((one for one in tried if (one["weight"], one["words"]) == setting), None)
    how = "plain decoding, as none has a lower max-ratio"
    if chosen:
        how = f"lambda {setting[0]:g}, gamma {setting[1]}, the lowest max-ratio"
    said = f"- MMI: {how} on validation pairs, of {len(tried)} settings"
    if not all("bleu_gain" in one for one in tried):
        return f"{said} less those of a lower BLEU-4, by chance or not."
    worse = sum(one["bleu_gain"]["high"] < 0 for one in tried)
    said += (
        f" less {worse} with a BLEU-4 below plain decoding's by more than chance (95% interval of a paired "
        "bootstrap over pairs)."
    )
    if chosen:
        gain, low, high = (chosen["bleu_gain"][key] for key in ("gain", "low", "high"))
        said += f" Its BLEU-4 there less that of plain decoding: {gain:+.2f} [{low:+.2f}, {high:+.2f}]."
    return said


def _spread(found: Found) -> str:
    if not found:
        return NOT_RUN
    rates = [100 * one["hits"] / one["n"] for one in found["candidates"][1:] or found["candidates"]]
    return f"{number(min(rates))} to {number(max(rates))}%"
