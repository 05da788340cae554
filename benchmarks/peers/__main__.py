"""`python -m benchmarks.peers exact|flops|front|speed [FLAG ...]`: what `make bench-peers` runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import ModuleType

import torch

from backtalk.errors import InputError
from backtalk.terminal import say
from benchmarks.peers import exact, flops, front, speed
from benchmarks.peers.contest import NEAR
from benchmarks.peers.jobs import PeerProcess

CONTESTS: dict[str, tuple[ModuleType, str, int]] = {
    "exact": (exact, "gibbs,gcg,nanogcg", 20),
    "flops": (flops, "gibbs,gcg,nanogcg", 20),
    "front": (front, "ours,flrt", 20),
    "speed": (speed, "gibbs,nanogcg,gcg,gibbs-64", 10),
}
"""Each with its tools and number of targets."""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    for name, (module, tools, targets) in CONTESTS.items():
        one = names.add_parser(name, help=module.__doc__, description=module.__doc__)
        module.add_flags(one)
        one.add_argument("--tools", default=tools, help=f"by commas, such as gibbs:top=128 [{tools}]")
        one.add_argument("--targets", type=int, default=targets, help=f"[{targets}]")
        one.add_argument("--seed", type=int, default=1, help="of the targets and of the searches [1]")
        one.add_argument("--work", default="runs/bench-peers", help="model and finished jobs; kept")
        one.add_argument("--out", default="docs/benchmarks", help="where the page and the JSON go")
        one.add_argument("--width", type=int, default=512, help="nanoGCG's candidates a step [512]")
        one.add_argument("--threads", type=int, default=2, help="[2]")
        one.add_argument("--python", default=".venv-peers/bin/python", help="nanoGCG's")
        one.add_argument("--peer-path", default="", help="PYTHONPATH of nanoGCG's Python [none]")
        if module is not speed:
            add_model_flags(one)
    return parser


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2", help="a Hugging Face model [smollm2]")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="[cpu]")
    parser.add_argument("--anneal", type=float, default=0.1, help="temperature of ours, 0 for none [0.1]")
    parser.add_argument("--top", type=int, default=512, help="candidates a position of ours [512]")
    parser.add_argument("--topk", type=int, default=256, help="nanoGCG's tokens a position [256]")
    parser.add_argument("--peer-dtype", default="float32", choices=tuple(NEAR), help="[float32]")
    parser.add_argument("--peer-tf32", action="store_true", help="nanoGCG multiplies in tf32")
    parser.add_argument("--search-only", action="store_true", help="keep the records and judge later")
    parser.add_argument("--part", default="1/1", help="K/M: nanoGCG takes each M-th target, to judge later")


def main(argv: list[str] | None = None) -> int:
    arguments = build_parser().parse_args(argv)
    torch.set_num_threads(arguments.threads)
    process = PeerProcess(arguments.python, arguments.peer_path, arguments.threads)
    module, _, _ = CONTESTS[arguments.name]
    try:
        page = module.run(arguments, process, Path(arguments.work) / arguments.name)
    except InputError as error:
        say(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(
        "Searched; call again without --search-only and --part to judge." if page is None else f"Page: {page}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
