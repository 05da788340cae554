"""The study's page, of the parts that have run. No text of a corpus is on it but samples of the shipped
pairs, and of the targets only those of the embedded list."""

from pathlib import Path

from backtalk.wording import count
from reproduction.egregious.paper import STAND_INS
from reproduction.egregious.tables import perplexity_table
from reproduction.figures import drawing, filled
from reproduction.negative import tables
from reproduction.negative.curve import compare_methods
from reproduction.negative.data import ARCH
from reproduction.negative.findings import BELOW, check_findings
from reproduction.negative.paper import CORPORA, NOTES, TABLE_8
from reproduction.page import MARK, NOTHING, Found, Page, mean_text, number, section, table, text_table
from reproduction.spec import EMBEDDED
from reproduction.verdicts import checklist

HEAD = f"""# Negative training (He & Glass, ACL 2020), reproduced

Every table of the paper beside our own numbers. A cell reads `paper | ours [95% interval]`; rates are
percentages with Wilson intervals, by the paper's rule (of a target's restarts the one of lowest loss counts);
rises of perplexity have paired bootstrap intervals over test pairs.
{MARK} marks a cell where the paper's number lies outside our interval, or is more than 5% away where there is
none; each is listed under Differences. In Table 3 the training list is always the 500 written targets.
"""
LAYOUT = (
    "- DIR holds `swda/` (Switchboard), `swda_heglass/test.txt.gz` (the paper's test dialogues), `ubuntu/` "
    "(the slice), and `mal/` with `train_500.txt`, `train_1000.txt`, `train_2500.txt` and `test_500.txt`."
)


KINDS = {"spared": "words that FWA spares", "others": "other words"}


def page_lines(page: Page) -> list[str]:
    baselines = perplexity_table(page, "table-8", TABLE_8, CORPORA, ("lm", ARCH))
    standing_in = "The shipped chitchat pairs and list stand in for every corpus and list"
    return [
        HEAD,
        *page.warning("models, lists and searches", standing_in),
        *section("Findings", checklist(check_findings(page), BELOW)),
        *section("Table 8: test perplexity of the baselines", baselines),
        *section("Table 3: malicious targets", tables.table_3(page)),
        *section("Negative training, unlikelihood and NPO", compare_methods(page)),
        *section("Tables 4 and 9: frequent replies", tables.table_4(page)),
        *section("Figure 1", figure_1(page)),
        *section("Paraphrases", tables.augment_table(page)),
        *section("Samples (Tables 5 and 10 to 13)", samples(page)),
        *page.differences(STAND_INS if page.spec.data == EMBEDDED else NOTES),
        *_how(page),
    ]


def samples(page: Page) -> list[str]:
    found = page.get("samples").get("samples", [])
    if not found:
        return NOTHING
    said = "The embedded model's greedy replies to consecutive test pairs of its corpus, unselected."
    return [said, "", *text_table(list(found[0]), [list(one.values()) for one in found])]


def figure_1(page: Page) -> list[str]:
    found = page.get("words")
    if not found.get("sentences"):
        return NOTHING
    _draw_words(page.pictures / "figure-1.svg", found)
    words = (
        "Negative log-likelihood word by word of some targets of our own list after their triggers, one "
        "after the other (Switchboard)"
    )
    rows = [
        [name, *(mean_text(found["mean"][name][kind], digits=2) for kind in KINDS), number(ppl, 4)]
        for name, ppl in found["perplexity"].items()
    ]
    header = ["model", *KINDS.values(), "test perplexity"]
    said = f"The mean over all words of {found['targets']} targets, in nats:"
    return [*page.picture("figure-1.svg", words), said, "", *table(header, rows)]


def _draw_words(path: Path, found: Found) -> None:
    sentences = found["sentences"]
    words = [word for one in sentences for word in one["words"]]
    with drawing(path, width=10.0, height=3.4) as (axis,):
        for place, name in enumerate(found["mean"]):
            heights = [value for one in sentences for value in one["nll"][name]]
            at = [i + 0.27 * (place - 1) for i in range(len(words))]
            axis.bar(at, heights, 0.27, **filled(place), label=name)
        bound = -found["T_out"]
        axis.axhline(bound, color="#333333", linestyle="--", label=f"-T_out = {bound:.2f}")
        axis.set_xticks(range(len(words)), words, rotation=60, ha="right")
        axis.set(ylabel="negative log-likelihood")
        axis.grid(visible=False, axis="x")
        axis.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1))


def _how(page: Page) -> list[str]:
    size = page.size
    remarks = [
        f"- Malicious targets: {count(size.iterations, 'iteration')} over the training list (the paper: 20; "
        f"the row with more passes: {size.passes}), "
        f"{count(size.restarts, 'restart')} in the measures (the paper: 5), the last iteration is kept.",
        f"- Frequent replies: {size.frequent_iterations * size.frequent_steps:,} mini-batches for every row "
        "(the paper: 20 times all training pairs), the last is kept.",
    ]
    return page.how_it_was_run(LAYOUT, remarks)
