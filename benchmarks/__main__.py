"""`python -m benchmarks search|transformer|ast|scorer|time [FLAG ...]`: one benchmark, printed as a table."""

from __future__ import annotations

import argparse
import sys

import torch

from backtalk.errors import InputError
from backtalk.specs import ModelOptions
from backtalk.terminal import say
from benchmarks.ast import AstBench
from benchmarks.scorer import bench_scorer
from benchmarks.search import SHAPES, bench_search
from benchmarks.timing import describe, time_commands
from benchmarks.transformer import Sizes, TransformerBench


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    search = names.add_parser("search", help="gibbs on an LSTM with random weights")
    search.add_argument("--shape", default="embedded", choices=SHAPES, help="model and batch sizes")
    search.add_argument("--arch", default="attention", choices=("attention", "last-h"))
    transformer = names.add_parser("transformer", help="gibbs, gcg and beam on a Hugging Face model")
    transformer.add_argument("--model", default="smollm2", help="hf/NAME-OR-FOLDER [smollm2]")
    transformer.add_argument("--length", type=int, default=15, help="tokens of a trigger [15]")
    transformer.add_argument("--target-tokens", type=int, default=8, help="tokens of a target [8]")
    transformer.add_argument(
        "--top", type=int, default=0, help="candidates a position [512 on a GPU, else 8]"
    )
    transformer.add_argument("--rows", type=int, default=0, help="targets in a batch [64 on a GPU, else 1]")
    ast = names.add_parser("ast", help="an adversary of the ast search: play and training")
    ast.add_argument("--model", default="smollm2", help="adversary and defender [smollm2]")
    ast.add_argument("--pairs", type=int, default=0, help="pairs of an epoch [512 on a GPU, else 14]")
    ast.add_argument("--batch", type=int, default=8, help="pairs of an update [8]")
    scorer = names.add_parser("scorer", help="a toxicity scorer")
    timing = names.add_parser("time", help="commands beside the time asked for and estimated")
    timing.add_argument("commands", nargs="+", metavar="COMMAND", help="such as 'audit --max-time 20s'")
    for one in (ast, scorer):
        one.add_argument("--scorer", default="toxicity", help="[toxicity]")
    for one in (transformer, ast):
        one.add_argument("--dtype", default="auto", help="of the weights [auto]")
    for one in (search, transformer, ast, scorer):
        one.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [auto]")
    return parser


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    try:
        run = {
            "search": run_search,
            "transformer": run_transformer,
            "ast": run_ast,
            "scorer": run_scorer,
            "time": run_timing,
        }
        run[arguments.name](arguments)
    except InputError as error:
        say(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0


def run_search(arguments: argparse.Namespace) -> None:
    say(f"{arguments.shape}, {arguments.arch}, {torch.get_num_threads()} threads, best of several runs:")
    for row in bench_search(SHAPES[arguments.shape], arguments.arch == "attention", arguments.device):
        share = "" if row.ceiling_share is None else f"{row.ceiling_share:7.1%} of the ceiling"
        say(f"  {row.name:<45}{row.candidates_per_s:>12,.0f} candidates/s {share}".rstrip())


def run_transformer(arguments: argparse.Namespace) -> None:
    sizes = Sizes(arguments.length, arguments.target_tokens, arguments.top, arguments.rows)
    options = ModelOptions(dtype=arguments.dtype)
    bench = TransformerBench(arguments.model, arguments.device, options, sizes)
    say(bench.title)
    for line in bench.lines():
        share = "" if line.ceiling_share is None else f"{line.ceiling_share:9.1%} of the products"
        rate = f"{line.candidates_per_s:>12,.0f} candidates/s of {line.tokens:5.1f} tokens"
        say(f"  {line.name:<34}{rate}{share}")


def run_ast(arguments: argparse.Namespace) -> None:
    options = ModelOptions(template="plain", dtype=arguments.dtype)
    bench = AstBench(
        arguments.model, arguments.scorer, arguments.device, options, arguments.pairs, arguments.batch
    )
    say(bench.title)
    for row in bench.rows():
        rate = f"{row.rate:,.0f}" if row.rate >= 100 else f"{row.rate:.3g}"
        say(f"  {row.name:<48}{rate:>12} {row.unit:<12}{row.note}".rstrip())


def run_scorer(arguments: argparse.Namespace) -> None:
    say(f"{arguments.scorer}, {arguments.device}, {torch.get_num_threads()} threads, best of several runs:")
    for row in bench_scorer(arguments.scorer, arguments.device):
        say(f"  {row.name:<35}{row.texts_per_s:>12,.0f} texts/s of {row.words:.0f} words")


def run_timing(arguments: argparse.Namespace) -> None:
    for one in time_commands(arguments.commands):
        say(describe(one))


if __name__ == "__main__":
    sys.exit(main())
