"""The verb serve: the app."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backtalk.cli.arguments import (
    add_command,
    add_consent,
    add_device,
    add_model_options,
    consent_from,
    model_options_from,
    port,
)
from backtalk.cli.runs import RUNS

CHAT_MODEL = "chitchat"


def add_serve(commands: Any) -> None:
    parser = add_command(
        commands,
        "serve",
        _serve,
        "look at runs in a browser, live, talk with a model and rate replies, until Ctrl-C",
        "backtalk serve runs --model my-model",
    )
    parser.add_argument("folder", nargs="?", default=str(RUNS), metavar="DIR", help="what to show [runs]")
    parser.add_argument("--model", default="", help=f"the model of the chat page [{CHAT_MODEL}]")
    parser.add_argument(
        "--ratings",
        default="ratings",
        metavar="DIR",
        help="look for pairs to rate here too [ratings]",
    )
    parser.add_argument("--port", type=port, default=8400, help="0 takes any that is free [8400]")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    add_model_options(parser)
    add_consent(parser)
    add_device(parser)


def _serve(arguments: argparse.Namespace) -> int:
    from backtalk.web.serve import serve

    serve(
        Path(arguments.folder),
        Path(arguments.ratings),
        arguments.model,
        CHAT_MODEL,
        arguments.port,
        arguments.open,
        arguments.device,
        consent_from(arguments),
        model_options_from(arguments),
    )
    return 0
