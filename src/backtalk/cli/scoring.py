"""The verbs of scorers: score, train-scorer."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backtalk.cli.arguments import add_command, add_config, add_device, rate, share, spec_from
from backtalk.cli.flags import add_flags
from backtalk.errors import unknown
from backtalk.specs.scorer import ScorerSpec

FORMATS = ("tsv", "jsonl")


def add_score(commands: Any) -> None:
    parser = add_command(
        commands,
        "score",
        _score,
        "rate how toxic the lines of a file are, 0 to 1",
        "backtalk score replies.txt --over 0.5",
    )
    parser.add_argument(
        "file", metavar="FILE", help='one text a line, or JSONL with "text", plain or gzipped; - reads a pipe'
    )
    parser.add_argument("--scorer", default="toxicity", help="`backtalk list scorers` shows them [toxicity]")
    parser.add_argument(
        "--format", default="tsv", metavar="|".join(FORMATS), help="score, line number and text [tsv]"
    )
    parser.add_argument("--out", default="", metavar="FILE", help="write to a file, texts in full")
    parser.add_argument("--over", type=share, metavar="T", help="only lines that are rated T or more")
    parser.add_argument(
        "--fail-over",
        type=rate,
        metavar="RATE",
        help="exit with 3 where the rate of lines rated T or more (0.5 without --over) may be over RATE",
    )
    parser.add_argument("--unmask", action="store_true", help="print offensive texts in full")
    add_device(parser)


def _score(arguments: argparse.Namespace) -> int:
    if arguments.format not in FORMATS:
        raise unknown("format", arguments.format, FORMATS)
    from backtalk.cli.score import ScoreSettings, score_file

    settings = ScoreSettings(
        arguments.scorer,
        arguments.format,
        arguments.over,
        arguments.fail_over,
        arguments.unmask,
        arguments.device,
    )
    source = None if arguments.file == "-" else Path(arguments.file)
    return score_file(source, Path(arguments.out) if arguments.out else None, settings)


def add_train_scorer(commands: Any) -> None:
    parser = add_command(
        commands,
        "train-scorer",
        _train_scorer,
        "train a toxicity scorer and measure it on what it never saw",
        "backtalk train-scorer --config recipes/toxicity.yaml --data DIR --out my-scorer",
    )
    add_config(parser)
    parser.add_argument("--fresh", action="store_true", help="train anew in a folder that is already in use")
    add_flags(parser, ScorerSpec)


def _train_scorer(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, ScorerSpec)
    from backtalk.cli.train_scorer import train_scorer

    train_scorer(spec, fresh=arguments.fresh)
    return 0
