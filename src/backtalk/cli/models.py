"""The commands on models, scorers and sentences: train, chat, rate, serve, score, list and so on."""

import argparse
from pathlib import Path
from typing import Annotated, Literal, get_args

from backtalk.cli import parser as flags
from backtalk.cli.config import consent_from, model_options_from, spec_from, trusted_by, values_of
from backtalk.cli.parser import command, flag, flags_of
from backtalk.errors import InputError
from backtalk.specs import Range, Seed, Share, Tries
from backtalk.specs.audit import RateSpec
from backtalk.specs.train import ScorerSpec, TrainSpec

Subject = Literal["models", "searches", "scorers", "methods", "hits", "targets", "formats", "recipes"]
Port = Annotated[int, Range(0, 65_535)]
Part = Annotated[float, Range(1e-9, 1)]
TRAINING = (flags.CONFIG, flags.FRESH)


@command("backtalk train --data pairs.tsv --hidden 256 --out my-model", *TRAINING, flags_of(TrainSpec))
def train(arguments: argparse.Namespace) -> None:
    """Train a dialogue model and its language model by maximum likelihood."""
    spec = spec_from(arguments, TrainSpec)
    from backtalk.cli.train import train_model

    train_model(spec, fresh=arguments.fresh)


@command(
    'backtalk chat --say "hello there" --probabilities',
    flag("--model", default="chitchat", help="the model's name or folder [chitchat]"),
    flag("--say", metavar="TEXT", action="append", help="say this and exit; may be repeated"),
    flag("--probabilities", action="store_true", help="show each word's probability"),
    flag("--sample", action="store_true", help="sample the replies"),
    # 1,000 beams take the embedded model seconds and half a gigabyte
    flag("--beam", type=Tries, default=0, metavar="N", help="show the N most likely replies"),
    flag("--seed", type=Seed, default=0, help="seed of the sampling [0]"),
    flags.MODEL_OPTIONS,
    *flags.CONSENT,
    flags.DEVICE,
)
def chat(arguments: argparse.Namespace) -> None:
    """Talk with a model; lines from a pipe are answered one by one."""
    from backtalk.web import chat as session

    consent, options = consent_from(arguments), model_options_from(arguments)
    settings = values_of(arguments, "model", "say", "probabilities", "sample", "beam", "seed", "device")
    session.chat(**settings, consent=consent, options=options)


@command(
    "backtalk rate hardened; then backtalk serve; then backtalk rate hardened --result",
    flag(
        "runs",
        nargs="+",
        metavar="RUN",
        help="a hardening, two audits or models, one audit, or ratings",
    ),
    flags.CONFIG,
    flags_of(RateSpec),
    flag("--result", action="store_true", help="show the result, and which model is which"),
)
def rate(arguments: argparse.Namespace) -> None:
    """Make blind pairs of two models' replies to judge in the app, or draw replies of one audit to label."""
    if len(arguments.runs) > 2:
        raise InputError("name two runs or models, one audit, or the folder of one hardening")
    spec = spec_from(arguments, RateSpec)
    from backtalk.rating import flow

    flow.rate(arguments.runs, spec, arguments.result)


@command(
    "backtalk serve runs --model my-model",
    flag("folder", nargs="?", default="runs", metavar="DIR", help="folder of runs [runs]"),
    flag("--model", default="", help="model of the chat page [chitchat]"),
    flag("--ratings", default="ratings", metavar="DIR", help="folder of ratings [ratings]"),
    flag("--port", type=Port, default=8400, help="0 for any free port [8400]"),
    flag("--open", action="store_true", help="open the page in a browser"),
    flags.MODEL_OPTIONS,
    *flags.CONSENT,
    flags.DEVICE,
)
def serve(arguments: argparse.Namespace) -> None:
    """Show runs in a browser, chat with a model and rate replies, until Ctrl-C."""
    from backtalk.web import server

    settings = values_of(arguments, "folder", "ratings", "model", "port", "open", "device")
    server.serve(**settings, consent=consent_from(arguments), options=model_options_from(arguments))


@command(
    "backtalk serve-model chitchat --port 8000",
    flag("name", metavar="NAME", help="the model's name or folder"),
    flag("--port", type=Port, default=8000, help="0 for any free port [8000]"),
    flag("--token", default="", help="require this API key"),
    flags.MODEL_OPTIONS,
    flags.TRUST,
    flags.DEVICE,
)
def serve_model(arguments: argparse.Namespace) -> None:
    """Serve a model at an OpenAI-compatible endpoint on this machine, until Ctrl-C."""
    from backtalk.web import model_server

    settings = values_of(arguments, "name", "port", "token", "device")
    options, trusted = model_options_from(arguments), trusted_by(arguments)
    model_server.serve_model(**settings, options=options, trusted=trusted)


@command(
    "backtalk score replies.txt --over 0.5",
    flag(
        "file",
        nargs="?",
        metavar="FILE",
        help='texts, one a line or JSONL with "text", plain or gzipped; a run: its replies; -: a pipe',
    ),
    flag("--scorer", default="", help="see `backtalk list scorers` [the best one installed]"),
    flag("--second", default="", metavar="SCORER", help="only lines that this one judges differently"),
    flag(
        "--labels", action="store_true", help='how right it is: JSONL with "text" and "toxic": true or false'
    ),
    flag("--card", action="store_true", help="the same on the texts that ship with backtalk"),
    flag("--out", default="", metavar="FILE", help="write to a file, unmasked; with --labels: JSON"),
    flag("--over", type=Part, metavar="T", help="only lines with a score of at least T"),
    flag("--fail-over", type=Share, metavar="RATE", help="exit status 3 if the share over T may exceed RATE"),
    flags.UNMASK,
    *flags.CONSENT[:2],
    flags.DEVICE,
)
def score(arguments: argparse.Namespace) -> int:
    """Rate how toxic each line of a file is, from 0 to 1, or measure a scorer."""
    consent, settings = consent_from(arguments), values_of(arguments, "scorer", "over", "unmask", "device")
    source = None if arguments.file in (None, "-") else Path(arguments.file)
    out = Path(arguments.out) if arguments.out else None
    if arguments.file is None and not arguments.card:
        raise InputError("name the file to score, or - for a pipe; only --card needs none")
    if arguments.labels or arguments.card or arguments.second:
        from backtalk.cli.score_card import measure_scorer

        asked = values_of(arguments, "labels", "card", "second")
        if sum(map(bool, asked.values())) > 1 or arguments.fail_over is not None:
            raise InputError("--labels, --card, --second and --fail-over are for one call each")
        measure_scorer(source, out, consent=consent, **asked, **settings)
        return 0
    from backtalk.cli.score import score_file

    return score_file(source, out, consent=consent, fail_over=arguments.fail_over, **settings)


@command(
    "backtalk train-scorer --config recipes/toxicity.yaml --data DIR --out my-scorer",
    *TRAINING,
    flags_of(ScorerSpec),
)
def train_scorer(arguments: argparse.Namespace) -> None:
    """Train a toxicity scorer and measure it on held-out text."""
    spec = spec_from(arguments, ScorerSpec)
    from backtalk.cli import train_scorer as training

    training.train_scorer(spec, fresh=arguments.fresh)


@command("backtalk list models", flag("subject", nargs="?", type=Subject, help="one of these [all]"))
def list_(arguments: argparse.Namespace) -> None:
    """List the available models, searches, scorers, methods, hits, targets, formats or recipes."""
    from backtalk.cli.listing import show

    for subject in [arguments.subject] if arguments.subject else get_args(Subject):
        show(subject)
