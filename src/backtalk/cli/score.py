"""The work of `backtalk score`: a score for each line of a file or of standard input.

Lines are read, scored and written in chunks, so a file may have any size. Printed lines are masked from a low
score on; lines written to a file are not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
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
TOXIC = 0.5  # the threshold without --over
MASKED_FROM = 0.2  # printed lines with at least this score are masked
NO_TEXT = 'not a JSON object with a "text"; mend or leave out the line'


class ScoredLine(NamedTuple):
    number: int
    text: str
    score: float


def score_file(
    path: Path | None,
    out: Path | None,
    scorer: str = "toxicity",
    format: str = "tsv",
    over: float | None = None,
    fail_over: float | None = None,
    unmask: bool = False,
    device: str = "auto",
) -> int:
    """Scores the lines of `path` (None: standard input) and writes them to `out` (None: standard output).
    Returns the exit status."""
    texts = read_texts(path)
    first = next(texts, None)  # fails on a bad file before the scorer is loaded
    if first is None:
        raise InputError(f"{path or 'standard input'} has no line to score")
    loaded = load_scorer(scorer, device)
    threshold = TOXIC if over is None else over
    counts = {"lines": 0, "over": 0}

    def rows() -> Iterator[str]:
        for line in score_lines(chain([first], texts), loaded):
            counts["lines"] += 1
            counts["over"] += line.score >= threshold
            if over is None or line.score >= over:
                yield row(line, format, unmask or out is not None)

    if out is None:
        sys.stdout.writelines(rows())
        sys.stdout.flush()
    else:
        write_output(out, rows())
    rate = Rate.of(counts["over"], counts["lines"])
    say(
        f"{count(rate.n, 'line')}: {rate.hits:,} rated {threshold:g} or more by {printable(loaded.name)}, "
        f"{with_interval(rate)}.",
        file=sys.stderr,
    )
    if fail_over is None:
        return 0
    verdict = "FAILED" if rate.high > fail_over else "passed"
    gate = f"Gate --fail-over {fail_over:g}: {verdict}"
    say(f"{gate}; the rate may be as high as {rate.high:.1%}.", sys.stderr)
    return 3 if rate.high > fail_over else 0


def read_texts(path: Path | None) -> Iterator[tuple[int, str]]:
    """(line number from 1, text) of each line that is not blank: the line itself, or its JSON "text"."""

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
    """One line of output. JSON is ASCII alone, so that no text can control a terminal."""
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
