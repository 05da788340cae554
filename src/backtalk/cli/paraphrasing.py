"""The verb paraphrase."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import add_command, add_device, count, seed, whole
from backtalk.errors import InputError


def add_paraphrase(commands: Any) -> None:
    parser = add_command(
        commands,
        "paraphrase",
        _paraphrase,
        "say targets in other words, by rules or by a trained paraphraser",
        'backtalk paraphrase "you are so boring" -n 4',
    )
    parser.add_argument("sentences", nargs="*", metavar="SENTENCE", help="what to say in other words")
    parser.add_argument("--targets", default="", metavar="LIST", help="a target list or file in their place")
    parser.add_argument("--limit", type=count, default=0, metavar="N", help="targets of the list at most")
    parser.add_argument(
        "-n", type=whole(1, 1000), default=4, metavar="N", help="paraphrases of each at most [4]"
    )
    parser.add_argument(
        "--paraphraser",
        default="rules",
        metavar="rules|FOLDER",
        help="rules, a trained one, or both by a comma [rules]",
    )
    parser.add_argument(
        "--model", default="chitchat", help="the model that should be able to say them [chitchat]"
    )
    parser.add_argument("--seed", type=seed, default=1, help="decides among equally different ones [1]")
    parser.add_argument("--out", default="", metavar="FILE.jsonl", help="write them as a target file")
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")
    add_device(parser)


def _paraphrase(arguments: argparse.Namespace) -> int:
    if bool(arguments.sentences) == bool(arguments.targets):
        raise InputError(
            'give sentences or a list: backtalk paraphrase "you are so boring", or --targets mal'
        )
    if not arguments.targets and not any(text.strip() for text in arguments.sentences):
        raise InputError("the sentence is empty; write what should be said in other words")
    from backtalk.paraphrase.show import show_paraphrases

    show_paraphrases(
        arguments.sentences,
        arguments.targets,
        arguments.limit,
        arguments.n,
        arguments.model,
        arguments.paraphraser,
        arguments.seed,
        arguments.out,
        arguments.unmask,
        arguments.device,
    )
    return 0
