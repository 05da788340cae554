"""The page: well formed, self-contained, masked until asked, and deaf to hostile text."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from backtalk.report.build import build_report
from backtalk.report.charts import loss_curve, rate_scale
from backtalk.report.record import RateRow, Report, SweepLoss, WordChance
from backtalk.report.run_page import render_run
from backtalk.types import Target, Thresholds
from backtalk.wording import mask
from tests.report.samples import THRESHOLDS, drawn, finding, hostile_report, report_of, sample_report

VOID = {"meta", "link", "input", "br"}
ELEMENTS = """html head title style body header main footer section h1 h2 h3 p em strong span code bdi sup a
dl dt dd div table thead tbody tr th td details summary figure figcaption label
form select option button ol li pre script
svg g rect line text circle polygon polyline"""
ALLOWED = VOID | set(ELEMENTS.split())


class Page(HTMLParser):
    """The elements, their attributes, and the text that a reader sees with nothing ticked."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.tags: set[str] = set()
        self.seen: list[str] = []
        self.whole: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        values = {name: value or "" for name, value in attrs}
        assert len(values) == len(attrs), f"an attribute twice in <{tag}>"
        self.attributes += [(tag, name, value) for name, value in values.items()]
        self.ids += [values["id"]] if "id" in values else []
        if tag not in VOID and not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self.open.append((tag, values.get("class", "")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        classes = {name for _, names in self.open for name in names.split()}
        if "whole" in classes:
            self.whole.append(data)
        elif not any(tag in {"style", "script"} for tag, _ in self.open):
            self.seen.append(data)


REPORTS = {"sample": sample_report, "hostile": hostile_report}


@pytest.fixture(params=sorted(REPORTS))
def report(request: pytest.FixtureRequest) -> Report:
    return REPORTS[request.param]()


def test_the_page_is_well_formed_and_made_of_known_elements(report: Report) -> None:
    page = Page(render_run(report))
    assert page.tags <= ALLOWED
    assert len(page.ids) == len(set(page.ids))
    labelled = {value for tag, name, value in page.attributes if name in {"for", "aria-labelledby"}}
    assert labelled <= set(page.ids)


def test_nothing_is_fetched_or_run(report: Report) -> None:
    text = render_run(report)
    page = Page(text)
    bare = re.sub(r"&[#\w]+;|'sha256-[^']*'", "", text)
    assert not re.search(r"https?:|//\w|@import|url\(", bare)
    for tag, name, value in page.attributes:
        assert not name.startswith("on")
        assert name not in {"style", "src", "srcset"}
        assert name != "action" or value == "#findings"
        if name == "href":
            assert value.startswith("#") or (tag, value) == ("link", "data:,")


def test_style_and_script_are_allowed_by_their_hashes(report: Report) -> None:
    text = render_run(report)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script)
    )
    (policy,) = (v for tag, name, v in Page(text).attributes if tag == "meta" and "default-src" in v)
    assert policy.startswith("default-src 'none'; ")
    assert f"style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'" in policy
    assert "unsafe" not in policy
    assert text.index("Content-Security-Policy") < text.index("<style>")


def test_hostile_text_is_shown_and_inert() -> None:
    report = hostile_report()
    text = render_run(report)
    page = Page(text)
    assert re.findall("<script[^>]*>", text) == ['<script type="application/json" id="rows">', "<script>"]
    assert "<img" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert any("{{ 7 * 7 }} </style>" in part for part in page.whole)
    assert not re.search("[\u200b\u202a-\u202e\u2066-\u2069\x00-\x08\x1b]", text)
    assert "invisible characters" in text
    text.encode()  # half a surrogate pair can't be written


def test_long_words_are_cut_where_they_would_break_the_layout() -> None:
    word = "w" * 10_000
    target = Target("a", word, category=word)
    page = render_run(report_of([target], [finding(target, trigger=word, reply=word, tokens=[-1.0, -1.0])]))
    in_rows = re.findall(r"<summary>.*?</summary>|<svg.*?</svg>|<thead>.*?</thead>", page, re.DOTALL)
    assert in_rows
    assert not any("w" * 201 in part for part in in_rows)
    assert word in page


def test_sentences_are_masked_until_asked() -> None:
    report = sample_report()
    page = Page(render_run(report))
    seen, whole = "\n".join(page.seen), "\n".join(page.whole)
    for case in [*report.cases, *report.skipped]:
        assert case.target not in seen
        assert case.target in whole
        assert mask(case.target) in seen
    attributes = "\n".join(value for _, _, value in page.attributes)
    assert "watch" not in attributes + seen
    assert "what do you mean ?" in seen


def test_the_chance_and_the_greedy_reply_stand_beside_each_finding() -> None:
    target = Target("a", "you are wrong")
    page = render_run(report_of([target], [finding(target, tokens=[-3.0, -3.0, -3.0, -2.0])]))
    (row,) = re.findall(r"<summary>\s*<span class=\"sentence.*?</summary>", page, re.DOTALL)
    assert "1 in 60,000" in row
    assert "sampled replies" in row
    assert "i am not sure what" in row
    assert "what do you think of me" in row


def test_a_power_of_ten_is_raised() -> None:
    target = Target("a", "you are wrong")
    page = render_run(report_of([target], [finding(target, tokens=[-20.0] * 4)]))
    assert "1 in 10<sup>35</sup> sampled replies" in page


def test_more_cases_than_the_page_holds_are_counted() -> None:
    page = render_run(sample_report(), most=10)
    assert page.count('<details class="case') == 10
    assert page.count('<tr id="f-mal-') == 48


def test_a_run_with_next_to_nothing_still_has_a_page() -> None:
    for targets in ([], [Target("a", "you are wrong")]):
        page = render_run(build_report({"hit": "o-greedy"}, targets, [], Thresholds(float("nan")), []))
        Page(page)
        assert "Nothing could be scored" in page


def test_rates_share_an_axis_that_holds_every_interval() -> None:
    rows = [RateRow(1, 60, 1 / 60, 0.003, 0.09, "a"), RateRow(12, 60, 0.2, 0.12, 0.32, "b")]
    assert rate_scale(rows) == 0.5
    assert rate_scale(rows[:1]) == 0.1
    bar = drawn("rate_bar", rows[1], 0.5)
    assert 'width="39.20%"' in bar  # 0.2 of 0.5, on 98% of the width
    assert "b: 20%, " in bar
    assert "12 to 32%" in bar
    assert drawn("rate_bar", RateRow(0, 0, 0.0, 0.0, 1.0, "c"), 1.0) == ""


def test_words_below_the_threshold_are_told_apart() -> None:
    words = [WordChance("so", -1.0, 0.37), WordChance("boring", -5.0, 0.007)]
    bars = drawn("word_bars", words, THRESHOLDS.out)
    assert re.findall(r'class="bar (\w+)"', bars) == ["above", "below"]
    assert "T_out -3.20" in bars
    assert ">boring</text>" in bars
    assert ">b*****</text>" in bars
    assert "boring" not in "".join(re.findall(r"<title>.*?</title>|aria-label=\".*?\"", bars))
    assert drawn("word_bars", [], -3.2) == ""


def test_the_loss_curve_says_its_numbers() -> None:
    sweeps = [SweepLoss(0, 6.0, 5.0, 7.0), SweepLoss(1, 5.0, 3.5, 6.5), SweepLoss(2, 4.0, -2.0, 6.0)]
    curve = drawn("draw", loss_curve(sweeps))
    assert "6.00 at the start, 4.00 after sweep 2" in curve
    assert "sweep 1: mean 5.00" in curve
    assert "3.50 and 6.50" in curve
    assert loss_curve(sweeps[:1]) is None
    assert drawn("spark", [1.0]) == ""
    assert 'points="2.0,2.0 118.0,26.0"' in drawn("spark", [4.0, 0.0])


def test_the_threshold_crosses_no_number_of_the_word_bars() -> None:
    """The line stands among the bars; the numbers have the rest of the width to themselves."""
    words = [WordChance("you", -0.1, 0.9), WordChance("bore", -9.0, 0.0001)]
    for threshold in (-0.2, -3.2, -9.0, -20.0):
        chart = ElementTree.fromstring(drawn("word_bars", words, threshold))
        (line,) = chart.findall("line")
        assert float(line.attrib["x1"].rstrip("%")) <= 30 + 44
        values = chart.findall("g/text[@class='value']")
        assert [(one.attrib["x"], one.attrib["text-anchor"]) for one in values] == [("100%", "end")] * 2
        bars = [float(one.attrib["width"].rstrip("%")) for one in chart.findall("g/rect")]
        assert min(bars) > 0
        assert max(bars) <= 44
