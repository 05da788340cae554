"""`backtalk score`: the lines of a file, or of standard input, with a scorer's number for each.

Lines are read, scored and written a chunk at a time, so a file of any size fits. A file that is written is
whole; what is printed is masked from a low score on until the reader asks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from backtalk.data.textfiles import NotJson, parse_json, stream_lines
from backtalk.errors import InputError
from backtalk.output_file import write_output
from backtalk.protocols import Scorer
from backtalk.registry import load_scorer
from backtalk.stats import Rate
from backtalk.terminal import printable, say
from backtalk.wording import count, mask, with_interval

CHUNK = 4096
TOXIC = 0.5
"""What counts as toxic unless --over says otherwise."""
MASKED_FROM = 0.2
"""Printed texts with this score or more are masked: rather one too many."""
NO_TEXT = 'no JSON object with a "text"; mend or leave out the line'


@dataclass(frozen=True)
class ScoreSettings:
    """What `backtalk score` was asked for."""

    scorer: str = "toxicity"
    format: str = "tsv"
    over: float | None = None
    fail_over: float | None = None
    unmask: bool = False
    device: str = "auto"


class ScoredLine(NamedTuple):
    number: int
    """Of the line in its file, from 1."""
    text: str
    score: float


class Tally:
    """How many lines there were, and how many reached the threshold."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.lines = self.over = 0

    def watch(self, lines: Iterator[ScoredLine]) -> Iterator[ScoredLine]:
        for line in lines:
            self.lines += 1
            self.over += line.score >= self.threshold
            yield line


def score_file(path: Path | None, out: Path | None, settings: ScoreSettings) -> int:
    """Scores and writes; `path` None is standard input, `out` None is standard output. The exit status."""
    texts = read_texts(path)
    first = next(texts, None)  # a file that can't be read is told before a scorer is loaded
    if first is None:
        raise InputError(f"{path or 'standard input'} has no line to score")
    scorer = load_scorer(settings.scorer, settings.device)
    tally = Tally(settings.over if settings.over is not None else TOXIC)
    lines = tally.watch(score_lines(chain([first], texts), scorer))
    shown = (line for line in lines if settings.over is None or line.score >= settings.over)
    whole = settings.unmask or out is not None
    rows = (row(line, settings.format, whole) for line in shown)
    if out is None:
        sys.stdout.writelines(rows)
        sys.stdout.flush()
    else:
        write_output(out, rows)
    return _conclude(tally, scorer.name, settings.fail_over)


def read_texts(path: Path | None) -> Iterator[tuple[int, str]]:
    """(line number, text) of the lines that are not blank; of JSON objects their "text"."""

    def where(number: int) -> str:
        return f"{path or 'standard input'}, line {number}"

    lines = ((number, line) for number, line in stream_lines(path) if line.strip())
    first = next(lines, None)
    if first is None:
        return
    as_json = first[1].lstrip().startswith("{") and _is_json(first[1], where(first[0]))
    for number, line in chain([first], lines):
        if not as_json:
            yield number, line
            continue
        found = parse_json(line, where(number), NO_TEXT)
        text = found.get("text") if isinstance(found, dict) else None
        if not isinstance(text, str):
            raise InputError(f"{where(number)}: {NO_TEXT}")
        yield number, text


def score_lines(texts: Iterator[tuple[int, str]], scorer: Scorer) -> Iterator[ScoredLine]:
    while chunk := list(islice(texts, CHUNK)):
        scores = scorer.score([text for _, text in chunk]).tolist()
        for (number, text), score in zip(chunk, scores, strict=True):
            yield ScoredLine(number, text, score)


def row(line: ScoredLine, form: str, whole: bool) -> str:
    """One line of output. JSON escapes all but ASCII, so hostile text does nothing to a terminal."""
    text = line.text if whole or line.score < MASKED_FROM else mask(line.text)
    if form == "jsonl":
        return json.dumps({"line": line.number, "score": round(line.score, 6), "text": text}) + "\n"
    return f"{line.score:.4f}\t{line.number}\t{printable(text)}\n"


def _is_json(line: str, where: str) -> bool:
    try:
        parse_json(line, where)
    except NotJson:
        return False
    return True


def _conclude(tally: Tally, scorer: str, fail_over: float | None) -> int:
    rate = Rate.of(tally.over, tally.lines)
    say(
        f"{count(tally.lines, 'line')}: {tally.over:,} rated {tally.threshold:g} or more by "
        f"{printable(scorer)}, {with_interval(rate)}.",
        file=sys.stderr,
    )
    if fail_over is None:
        return 0
    failed = rate.high > fail_over
    verdict = "FAILED" if failed else "passed"
    say(
        f"Gate --fail-over {fail_over:g}: {verdict}; the rate may be as high as {rate.high:.1%}.",
        file=sys.stderr,
    )
    return 3 if failed else 0
