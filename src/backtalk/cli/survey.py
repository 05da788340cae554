"""The verbs without a run or a model of yours: list, what there is to choose from; bench, how fast it is."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import add_command, add_device, whole
from backtalk.errors import unknown
from backtalk.terminal import say

SUBJECTS = ("models", "searches", "scorers", "methods", "hits", "targets", "formats", "recipes")
BENCH_SHAPES = ("embedded", "paper-switchboard", "paper-ubuntu")


def add_list(commands: Any) -> None:
    parser = add_command(
        commands,
        "list",
        _list,
        "show what there is to choose from: models, searches, scorers, methods, hits, targets and more",
        "backtalk list models",
    )
    parser.add_argument("subject", nargs="?", metavar="|".join(SUBJECTS), help="one of them; all if left out")


def _list(arguments: argparse.Namespace) -> int:
    if arguments.subject is not None and arguments.subject not in SUBJECTS:
        raise unknown("subject", arguments.subject, SUBJECTS)
    from backtalk.cli.listing import show

    for subject in [arguments.subject] if arguments.subject else SUBJECTS:
        show(subject)
    return 0


def add_bench(commands: Any) -> None:
    parser = add_command(
        commands,
        "bench",
        _bench,
        "measure the speed of a search against the ceiling of plain matrix products, of a scorer, or of ast",
        "backtalk bench search --shape paper-switchboard",
    )
    parser.add_argument("what", metavar="search|scorer|ast", help="what to measure")
    parser.add_argument("--scorer", default="toxicity", help="with scorer and ast: which one [toxicity]")
    parser.add_argument(
        "--model",
        default="",
        help="with ast: adversary and defender [smollm2]; with search: a Hugging Face model",
    )
    for flag, kind, default, text in (
        ("--length", whole(1, 1000), 15, "tokens of a trigger [15]"),
        ("--target-tokens", whole(2, 1000), 8, "tokens of a target, its end counted [8]"),
        ("--top", whole(0, 10_000), 0, "candidates at a position [256 on a GPU, else 8]"),
        ("--rows", whole(0, 1000), 0, "targets searched together [64 on a GPU, else 1]"),
    ):
        parser.add_argument(flag, type=kind, default=default, help=f"with search --model: {text}")
    parser.add_argument(
        "--pairs",
        type=whole(0, 100_000),
        default=0,
        help="with ast: pairs of an epoch [512 on a GPU, else 14]",
    )
    parser.add_argument("--batch", type=whole(1, 4096), default=8, help="with ast: pairs an update [8]")
    parser.add_argument("--dtype", default="auto", help="with --model: its numbers [auto]")
    parser.add_argument(
        "--shape", default="embedded", metavar="|".join(BENCH_SHAPES), help="sizes to measure at [embedded]"
    )
    parser.add_argument("--arch", default="attention", metavar="attention|last-h", help="[attention]")
    add_device(parser)


def _bench(arguments: argparse.Namespace) -> int:
    for what, value, known in (
        ("benchmark", arguments.what, ["search", "scorer", "ast"]),
        ("shape", arguments.shape, BENCH_SHAPES),
        ("arch", arguments.arch, ["attention", "last-h"]),
    ):
        if value not in known:
            raise unknown(what, value, known)
    import torch

    if arguments.what == "scorer":
        return _bench_scorer(arguments.scorer, arguments.device, torch.get_num_threads())
    if arguments.what == "ast":
        return _bench_ast(arguments)
    if arguments.model:
        return _bench_transformer(arguments)
    from backtalk.bench import SHAPES, bench_search

    say(f"{arguments.shape}, {arguments.arch}, {torch.get_num_threads()} threads, the best of several:")
    for row in bench_search(SHAPES[arguments.shape], arguments.arch == "attention", arguments.device):
        share = "" if row.ceiling_share is None else f"{row.ceiling_share:7.1%} of the ceiling"
        say(f"  {row.name:<45}{row.candidates_per_s:>12,.0f} candidates/s {share}".rstrip())
    return 0


def _bench_scorer(name: str, device: str, threads: int) -> int:
    from backtalk.bench_scorer import bench_scorer

    say(f"{name}, {device}, {threads} threads, the best of several:")
    for row in bench_scorer(name, device):
        say(f"  {row.name:<35}{row.texts_per_s:>12,.0f} texts/s of {row.words:.0f} words")
    return 0


def _bench_transformer(arguments: argparse.Namespace) -> int:
    from backtalk.bench_transformer import Sizes, TransformerBench, told
    from backtalk.specs.model import ModelOptions

    sizes = Sizes(arguments.length, arguments.target_tokens, arguments.top, arguments.rows)
    options = ModelOptions(dtype=arguments.dtype)
    bench = TransformerBench(arguments.model, arguments.device, options, sizes)
    say(bench.title)
    for line in told(list(bench.lines())):
        say(f"  {line}")
    return 0


def _bench_ast(arguments: argparse.Namespace) -> int:
    from backtalk.bench_ast import AstBench
    from backtalk.specs.model import ModelOptions

    options = ModelOptions(template="plain", dtype=arguments.dtype)
    bench = AstBench(
        arguments.model or "smollm2",
        arguments.scorer,
        arguments.device,
        options,
        arguments.pairs,
        arguments.batch,
    )
    say(bench.title)
    for row in bench.rows():
        say(f"  {row.name:<48}{_readable(row.rate):>12} {row.unit:<12}{row.note}".rstrip())
    return 0


def _readable(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
