"""The verbs of a model: train, chat."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import (
    above_zero,
    add_command,
    add_config,
    add_device,
    natural,
    positive,
    share,
    spec_from,
)
from backtalk.spec import TrainSpec, add_flags


def add_train(commands: Any) -> None:
    parser = add_command(
        commands,
        "train",
        _train,
        "train a dialogue model and its language model by maximum likelihood",
        "backtalk train --data pairs.tsv --hidden 256 --out my-model",
    )
    add_config(parser)
    parser.add_argument("--fresh", action="store_true", help="start anew in a folder that is already in use")
    add_flags(parser, TrainSpec)


def _train(arguments: argparse.Namespace) -> int:
    spec = spec_from(arguments, TrainSpec)
    from backtalk.train import train_model

    train_model(spec, fresh=arguments.fresh)
    return 0


def add_chat(commands: Any) -> None:
    parser = add_command(
        commands,
        "chat",
        _chat,
        "talk with a model; lines from a pipe are answered one by one",
        'backtalk chat --say "hello there" --probabilities',
    )
    parser.add_argument("--model", default="chitchat", help="the model's name or folder [chitchat]")
    parser.add_argument("--say", metavar="TEXT", action="append", help="say this and leave; may be repeated")
    parser.add_argument("--probabilities", action="store_true", help="show each word's probability")
    parser.add_argument("--sample", action="store_true", help="sample replies instead of the greedy ones")
    parser.add_argument("--beam", type=positive, metavar="N", help="show the N likeliest replies")
    parser.add_argument("--temperature", type=above_zero, default=1.0, help="with --sample [1.0]")
    parser.add_argument("--top-k", type=positive, default=0, help="with --sample: the K likeliest words")
    parser.add_argument("--top-p", type=share, default=1.0, help="with --sample: words up to this mass")
    parser.add_argument("--seed", type=natural, default=0, help="with --sample [0]")
    add_device(parser)


def _chat(arguments: argparse.Namespace) -> int:
    from backtalk.chat import ChatSettings, chat

    settings = ChatSettings(
        probabilities=arguments.probabilities,
        sample=arguments.sample,
        beam=arguments.beam or 0,
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    chat(arguments.model, arguments.say, settings, arguments.device)
    return 0
