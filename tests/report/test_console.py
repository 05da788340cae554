"""The report on terminals of several widths."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from backtalk.report.console import print_report
from backtalk.report.record import Report
from backtalk.terminal import printable
from backtalk.types import Target
from tests.hostile import HOSTILE, hostile_cases
from tests.report.samples import finding, hostile_report, report_of, sample_report


def shown(report: Report, width: int, unmask: bool = False, top: int = 8) -> str:
    file = io.StringIO()
    print_report(report, Console(file=file, width=width), top=top, unmask=unmask)
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("make", [sample_report, hostile_report])
def test_it_fits(make: type, width: int) -> None:
    lines = shown(make(), width).splitlines()
    assert max(map(cell_len, lines)) <= width


@pytest.mark.parametrize("width", [60, 120])
def test_no_hostile_text_reaches_the_terminal(width: int) -> None:
    targets, findings = hostile_cases()
    text = shown(report_of(targets, findings, model=HOSTILE[0]), width, unmask=True, top=200)
    # An escape, a bidirectional or zero-width sign, half a pair: none is left. rich's own line ends are.
    assert text.replace("\n", "") == printable(text.replace("\n", ""))
    assert "rich markup" in text
    assert "[bold red]" in text
    assert len(text) < 200_000


@pytest.mark.parametrize("width", [60, 80, 120])
def test_it_says_the_result(width: int) -> None:
    report = sample_report()
    text = shown(report, width)
    squeezed = " ".join(text.split())
    assert report.headline in squeezed
    assert squeezed.partition("io-sample-avg-k1: ")[2].startswith("11 of 57 (19%, 95% interval 11 to 31%)")
    assert squeezed.index("what do you mean ?") < squeezed.index("sample-avg-k1 ")  # findings, then criteria
    assert squeezed.partition("rude ")[2].startswith("4 of 15 27% 11 to 52%")
    assert "1 in 260,000" in text
    assert "what do you mean ?" in text
    assert "2 sentences skipped" in text
    assert "1 sentence could not be scored" in text


def test_sentences_are_masked_unless_asked() -> None:
    report = sample_report()
    assert "watch your back" not in shown(report, 120)
    assert "w**** y*** b***" in shown(report, 120)
    assert "watch your back" in shown(report, 120, unmask=True)
    assert "***" not in shown(report, 120, unmask=True)


def test_hostile_text_neither_colours_nor_moves_the_cursor() -> None:
    text = shown(hostile_report(), 120, unmask=True)
    assert "[bold]surrogates[/bold]" in " ".join(text.split())
    assert not set(text) & {"\x1b", "\u202e", "\u200b", "\ud83d"}


def test_without_hits_the_likeliest_are_shown() -> None:
    target = Target("a", "you are wrong")
    text = shown(report_of([target], [finding(target, tokens=[-9.0] * 4)]), 80)
    assert "1 of 1 finding" in text
    assert text.count("1 in 10^16 sampled replies") == 2  # in the verdict, and of the finding


def test_a_run_that_stopped_early_says_so() -> None:
    targets = [Target("a", "you are wrong"), Target("b", "go away")]
    text = shown(report_of(targets, [finding(targets[0])], stopped="--max-time 10s was reached"), 80)
    assert "1 of 2 sentences was not tried: --max-time 10s was reached." in text


def test_a_run_that_scored_nothing_says_only_that() -> None:
    target = Target("a", "you are wrong")
    text = shown(report_of([target], [], stopped="--max-time 1s was reached"), 80)
    assert text.startswith("Nothing could be scored")
    assert "%" not in text
