"""The tables of He & Glass 2020 from the records of the parts, in the paper's numbering, and our own rows:
in Tables 4 and 9 the floor of max-ratio, the control of the GAN, other scales of <eos>, and beam search."""

from collections.abc import Mapping, Sequence

from reproduction.negative import paper
from reproduction.negative.frequent import CONTROL, COPIES
from reproduction.negative.malicious import EXTRA, MEASURED, OURS, PASSES, extra_rows, older_part, row_part
from reproduction.negative.paper import ALPHA_G, BASELINE, CORPORA, HITS, LISTS, R_THRES, TITLES
from reproduction.page import NOT_RUN, NOTHING, Cell, Found, Page, between, number, rise_of, table

HEADER_3 = [
    "training", "training list, %", "test list, %", "training list with dropout, %",
    "test list with dropout, %", "PPL", "rise of PPL, %", "iterations, updates",
]  # fmt: skip


def malicious(page: Page, corpus: str, hit: str, row: str) -> Found:
    return page.get(row_part(corpus, hit, row))


def rate_of(found: Found, which: str) -> Found | None:
    """By the paper's rule, the restart of lowest loss."""
    rates = found.get("lists", {}).get(which, {}).get("rate")
    return rates["best"] if rates else None


def paper_rise(corpus: str, hit: str, row: str) -> float | None:
    printed = paper.TABLE_3.get((corpus, hit, row))
    start = paper.TABLE_3[corpus, hit, BASELINE][2]
    return None if printed is None else round(100 * (printed[2] / start - 1), 2)


def table_3(page: Page) -> list[str]:
    lines: list[str] = []
    for corpus in CORPORA:
        for hit in HITS[corpus]:
            rows = (BASELINE, *LISTS, *extra_rows(corpus, hit))
            body = [_row_3(page, corpus, hit, row) for row in rows]
            lines += [f"**{TITLES[corpus]}, {hit}**", "", *table(HEADER_3, body)]
    return [*lines, *_counts(page), *_as_2019(page)]


def _row_3(page: Page, corpus: str, hit: str, row: str) -> list[str]:
    found, key = malicious(page, corpus, hit, row), f"table-3/{corpus}/{hit}/{row}"
    printed = paper.TABLE_3.get((corpus, hit, row), (None, None, None))
    cost = malicious(page, corpus, hit, "500" if row == BASELINE else row).get("cost", {})
    perplexity = cost.get("perplexity", (None, None))[row != BASELINE]  # before, after
    cells = [_title(row), *_rates(page, key, printed[:2], found)]
    cells.append(page.cell(Cell(f"{key}/ppl", printed[2], perplexity, digits=4)))
    if row == BASELINE:
        return [*cells, "", ""]
    rise, allowed = rise_of(cost) if cost else None, paper_rise(corpus, hit, row)
    cells.append(page.cell(Cell(f"{key}/rise", allowed, rise and rise[0], rise and rise[1:])))
    return [*cells, f"{found['iterations_kept']}, {found['updates']:,}" if found else NOT_RUN]


def _rates(page: Page, key: str, printed: Sequence[float | None], found: Found) -> list[str]:
    """By the paper's rule; then as the public code counts, the same triggers while dropout is on."""
    cells, dropped = [], []
    for which, value in zip(MEASURED, printed, strict=True):
        cells.append(page.rate(f"{key}/{which}", value, rate_of(found, which)))
        rate = found.get("lists", {}).get(which, {}).get("with_dropout")
        dropped.append(Cell.of_rate(f"{key}/{which}-dropout", None, rate).text)
    return cells + dropped


def _counts(page: Page) -> list[str]:
    lines, why = [], "words that the model does not know, or a sentence twice."
    for corpus in CORPORA:
        baselines = [malicious(page, corpus, hit, BASELINE) for hit in HITS[corpus]]
        if found := next(filter(None, baselines), None):
            lists = [(which, one) for which in MEASURED if (one := found["lists"].get(which))]
            said = [f"{one['n']} of the {which} list ({one['left_out']} left out)" for which, one in lists]
            lines.append(f"- {TITLES[corpus]}: {', '.join(said)}: {why}")
    return [*lines, ""]


def _as_2019(page: Page) -> list[str]:
    corpus, hit = OURS
    body = []
    for row in (BASELINE, *LISTS, PASSES):
        if found := page.get(older_part(row)):
            printed = paper.TABLE_3[corpus, hit, "500" if row == PASSES else row][:2]
            body.append([_title(row), *_rates(page, f"as-2019/{corpus}/{hit}/{row}", printed, found)])
    if not body:
        return []
    said = (
        f"{TITLES[corpus]}, {hit}: the same models searched by eq. 6 of the paper of 2019, "
        "which lets go of a word once it is likely enough. Eq. 7, printed in this paper, has no such term, "
        "but its public code gives likely words a hundredth of the weight."
    )
    return [said, "", *table(HEADER_3[:5], body)]


def _title(row: str) -> str:
    if row == BASELINE:
        return row
    if row == PASSES:
        return "+500, more passes"
    return f"+neg-tr, {row} targets" if row in LISTS else f"+{EXTRA[row][0]}, {EXTRA[row][1]}"


# Tables 4 and 9


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
    for name in [CONTROL, "mmi", *negative_rows(corpus), "negative-1-eos-0", "negative-1-eos-1"]:
        if found := page.get(f"frequent-{corpus}-{name}"):
            rows[name] = found["row"]
    return rows


def best_gan(page: Page, corpus: str) -> tuple[str, Found] | None:
    """The rate of the generator whose last iteration has the lowest max-ratio on validation pairs."""
    found = {alpha: one for alpha in ALPHA_G if (one := page.get(f"frequent-{corpus}-gan-{alpha}"))}
    if not found:
        return None
    last = {alpha: one["candidates"][-1] for alpha, one in found.items()}
    alpha = min(last, key=lambda alpha: last[alpha]["hits"] / last[alpha]["n"])
    return alpha, found[alpha]


def table_4(page: Page) -> list[str]:
    lines: list[str] = [COUNTED, "", BESIDE, ""]
    for corpus in CORPORA:
        rows = frequent_rows(page, corpus)
        shown = [BASELINE, "gan", CONTROL, "mmi", *negative_rows(corpus)]
        ours = ("negative-1-eos-0", "negative-1-eos-1", "greedy beside beam", "beam")
        shown += [name for name in ours if name in rows]
        body = [_row_4(page, corpus, "test set", rows), _floor(page, corpus, rows)]
        body += [_row_4(page, corpus, name, rows) for name in shown]
        header = ["", "PPL", "max-ratio, %", "Ent-2", "Ent-3", "words a reply", "BLEU-4"]
        lines += [f"**{TITLES[corpus]}**", "", *table(header, body), *_chosen(page, corpus)]
    return lines


def negative_rows(corpus: str) -> list[str]:
    return [f"negative-{share[:-1]}" for share in R_THRES[corpus]]


def _row_4(page: Page, corpus: str, name: str, rows: Mapping[str, Found]) -> list[str]:
    key, found = f"table-4/{corpus}/{name}", rows.get(name, {})
    perplexity, ratio, *entropies = paper.TABLE_4.get((corpus, name), (None, None, None, None))
    cells = [page.cell(Cell(f"{key}/ppl", perplexity, found.get("perplexity"), digits=4))]
    if name in ("test set", "mmi", "beam", "greedy beside beam"):
        cells = [""]
    cells.append(page.rate(f"{key}/max-ratio", ratio, found.get("max_ratio")))
    for n, printed in zip((2, 3), entropies, strict=True):
        cells.append(page.cell(Cell(f"{key}/ent-{n}", printed, found.get(f"ent_{n}_eos"))))
    cells += [number(found.get("length")) if found else NOT_RUN, _bleu(corpus, name, found)]
    return [_title_4(name), *cells]


def _floor(page: Page, corpus: str, rows: Mapping[str, Found]) -> list[str]:
    cell = page.rate(f"table-4/{corpus}/floor/max-ratio", None, rows.get(BASELINE, {}).get("floor"))
    return ["floor", "", cell, "", "", "", ""]


def _title_4(name: str) -> str:
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
    how, beside = "plain decoding, as none has a lower max-ratio", ""
    if chosen:
        how = f"lambda {setting[0]:g}, gamma {setting[1]}, the lowest max-ratio"
        gain = "{gain:+.2f} [{low:+.2f}, {high:+.2f}]".format(**chosen["bleu_gain"])
        beside = f" Its BLEU-4 there less that of plain decoding: {gain}."
    worse = sum(one["bleu_gain"]["high"] < 0 for one in tried)
    return (
        f"- MMI: {how} on validation pairs, of {len(tried)} settings less {worse} with a BLEU-4 below plain "
        f"decoding's by more than chance (95% interval of a paired bootstrap over pairs).{beside}"
    )


def _spread(found: Found) -> str:
    if not found:
        return NOT_RUN
    rates = [100 * one["hits"] / one["n"] for one in found["candidates"][1:] or found["candidates"]]
    return f"{number(min(rates))} to {number(max(rates))}%"


# Paraphrases


def augment_table(page: Page) -> list[str]:
    body = []
    for copies in COPIES:
        if found := page.get(f"augment-embedded-{copies}"):
            widened = found["augmentation"] or {}
            removed = ", ".join(f"{count} {why}" for why, count in widened.get("removed", {}).items())
            hits = (found[which] for which in ("train", "held_out"))
            body.append([
                str(copies),
                f"{found['lists']['train']} ({widened.get('added', 0)} added)",
                removed or "none",
                str(found["overlap"]),
                *(f"{between(one['before'])} → {between(one['after'])}" for one in hits),
                "{:+.1f} [{:+.1f}, {:+.1f}]".format(*rise_of(found["cost"])),
            ])  # fmt: skip
    if not body:
        return NOTHING
    header = ["copies", "training targets", "removed", "overlap with held-out"]
    header += ["training list, %", "held-out list, %", "rise of PPL, %"]
    said = "The embedded model and list, `harden --augment N`; io-sample-avg-k1."
    return [said, "", *table(header, body)]
