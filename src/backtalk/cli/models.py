"""The verbs of a model: train, chat, serve-model."""

from __future__ import annotations

import argparse
from typing import Any

from backtalk.cli.arguments import (
    add_command,
    add_config,
    add_consent,
    add_device,
    add_model_options,
    add_trust,
    consent_from,
    model_options_from,
    number,
    port,
    seed,
    share,
    spec_from,
    trusted_by,
    whole,
)
from backtalk.cli.flags import add_flags
from backtalk.errors import InputError, unknown
from backtalk.specs.train import TrainSpec

DECODINGS = ("greedy", "beam")
BEAM = 5
"""Replies that --decode beam shows unless --beam says how many."""
MOST_BEAMS = 1000
"""The embedded model takes seconds and half a gigabyte for them."""


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
    from backtalk.cli.train import train_model

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
    parser.add_argument("--beam", type=whole(1, MOST_BEAMS), metavar="N", help="show the N likeliest replies")
    parser.add_argument(
        "--decode",
        default="",
        metavar="|".join(DECODINGS),
        help="how a reply is chosen [greedy]",
    )
    parser.add_argument("--temperature", type=number(1e-9, 1000), default=1.0, help="with --sample [1.0]")
    parser.add_argument(
        "--top-k", type=whole(1, 1_000_000), default=0, help="with --sample: the K likeliest words"
    )
    parser.add_argument("--top-p", type=share, default=1.0, help="with --sample: words up to this mass")
    parser.add_argument("--seed", type=seed, default=0, help="with --sample [0]")
    add_model_options(parser)
    add_consent(parser)
    add_device(parser)


def _chat(arguments: argparse.Namespace) -> int:
    decode = arguments.decode
    if decode and decode not in DECODINGS:
        raise unknown("decoding", decode, DECODINGS)
    if decode and arguments.sample:
        raise InputError(f"--sample and --decode {decode} exclude each other; leave one out")
    if decode == "greedy" and arguments.beam:
        raise InputError("--decode greedy gives one reply; leave out --beam, or use --decode beam")
    from backtalk.web.chat import ChatSettings, chat

    settings = ChatSettings(
        probabilities=arguments.probabilities,
        sample=arguments.sample,
        beam=arguments.beam or (BEAM if decode == "beam" else 0),
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    consent, options = consent_from(arguments), model_options_from(arguments)
    chat(arguments.model, arguments.say, settings, arguments.device, consent, options)
    return 0


def add_serve_model(commands: Any) -> None:
    parser = add_command(
        commands,
        "serve-model",
        _serve_model,
        "put a model behind an OpenAI-compatible endpoint on this machine, until Ctrl-C",
        "backtalk serve-model chitchat --port 8000",
    )
    parser.add_argument("name", metavar="NAME", help="the model's name or folder")
    parser.add_argument("--port", type=port, default=8000, help="0 takes any that is free [8000]")
    parser.add_argument("--token", default="", help="answer only those who send this as their key")
    add_model_options(parser)
    add_trust(parser)
    add_device(parser)


def _serve_model(arguments: argparse.Namespace) -> int:
    from backtalk.web.model_server import serve_model

    options = model_options_from(arguments)
    serve_model(
        arguments.name, arguments.port, arguments.token, arguments.device, options, trusted_by(arguments)
    )
    return 0
