"""The commands on models, scorers and sentences: train, chat, serve-model, score, train-scorer, paraphrase,
list."""

from __future__ import annotations

import argparse
from pathlib import Path

from backtalk.cli.config import consent_from, model_options_from, spec_from, trusted_by, values_of
from backtalk.cli.parser import (
    CONFIG,
    CONSENT,
    DEVICE,
    FRESH,
    MODEL_OPTIONS,
    TRUST,
    UNMASK,
    command,
    count,
    flag,
    flags_of,
    number,
    percentage,
    port,
    seed,
    share,
)
from backtalk.errors import InputError, unknown
from backtalk.specs.scorer import ScorerSpec
from backtalk.specs.train import TrainSpec

DECODINGS = ("greedy", "beam")
BEAM = 5
"""Replies that --decode beam shows without --beam."""
FORMATS = ("tsv", "jsonl")
SUBJECTS = ("models", "searches", "scorers", "methods", "hits", "targets", "formats", "recipes")


@command("backtalk train --data pairs.tsv --hidden 256 --out my-model", CONFIG, FRESH, flags_of(TrainSpec))
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
    flag("--beam", type=number(int, 1, 1000), metavar="N", help="show the N most likely replies"),
    flag("--decode", default="", metavar="|".join(DECODINGS), help="how a reply is chosen [greedy]"),
    flag("--temperature", type=number(float, 1e-9, 1000), default=1.0, help="sampling temperature [1.0]"),
    flag("--top-k", type=number(int, 1, 1_000_000), default=0, help="sample among the K most likely words"),
    flag("--top-p", type=share, default=1.0, help="sample among words up to this probability mass [1.0]"),
    flag("--seed", type=seed, default=0, help="seed of the sampling [0]"),
    MODEL_OPTIONS,
    *CONSENT,
    DEVICE,
)
def chat(arguments: argparse.Namespace) -> None:
    """Talk with a model; lines from a pipe are answered one by one."""
    decode = arguments.decode
    if decode and decode not in DECODINGS:
        raise unknown("decoding", decode, DECODINGS)
    if decode and arguments.sample:
        raise InputError(f"--sample and --decode {decode} exclude each other; leave one out")
    if decode == "greedy" and arguments.beam:
        raise InputError("--decode greedy gives one reply; leave out --beam, or use --decode beam")
    from backtalk.web import chat as session

    settings = session.ChatSettings(
        probabilities=arguments.probabilities,
        sample=arguments.sample,
        beam=arguments.beam or (BEAM if decode == "beam" else 0),
        temperature=arguments.temperature,
        top_k=arguments.top_k,
        top_p=arguments.top_p,
        seed=arguments.seed,
    )
    consent, options = consent_from(arguments), model_options_from(arguments)
    session.chat(arguments.model, arguments.say, settings, arguments.device, consent, options)


@command(
    "backtalk serve-model chitchat --port 8000",
    flag("name", metavar="NAME", help="the model's name or folder"),
    flag("--port", type=port, default=8000, help="0 for any free port [8000]"),
    flag("--token", default="", help="require this API key"),
    MODEL_OPTIONS,
    TRUST,
    DEVICE,
)
def serve_model(arguments: argparse.Namespace) -> None:
    """Serve a model at an OpenAI-compatible endpoint on this machine, until Ctrl-C."""
    from backtalk.web import model_server

    options, trusted = model_options_from(arguments), trusted_by(arguments)
    model_server.serve_model(
        arguments.name, arguments.port, arguments.token, arguments.device, options, trusted
    )


@command(
    "backtalk score replies.txt --over 0.5",
    flag(
        "file", metavar="FILE", help='one text a line, or JSONL with "text", plain or gzipped; - for a pipe'
    ),
    flag("--scorer", default="toxicity", help="see `backtalk list scorers` [toxicity]"),
    flag("--format", default="tsv", metavar="|".join(FORMATS), help="score, line number and text [tsv]"),
    flag("--out", default="", metavar="FILE", help="write to a file, unmasked"),
    flag("--over", type=share, metavar="T", help="only lines with a score of at least T"),
    flag(
        "--fail-over",
        type=percentage,
        metavar="RATE",
        help="exit status 3 if the share of lines with a score of at least T [0.5] may exceed RATE",
    ),
    UNMASK,
    DEVICE,
)
def score(arguments: argparse.Namespace) -> int:
    """Rate how toxic each line of a file is, from 0 to 1."""
    if arguments.format not in FORMATS:
        raise unknown("format", arguments.format, FORMATS)
    from backtalk.cli.score import score_file

    source = None if arguments.file == "-" else Path(arguments.file)
    out = Path(arguments.out) if arguments.out else None
    settings = values_of(arguments, "scorer", "format", "over", "fail_over", "unmask", "device")
    return score_file(source, out, **settings)


@command(
    "backtalk train-scorer --config recipes/toxicity.yaml --data DIR --out my-scorer",
    CONFIG,
    FRESH,
    flags_of(ScorerSpec),
)
def train_scorer(arguments: argparse.Namespace) -> None:
    """Train a toxicity scorer and measure it on held-out text."""
    spec = spec_from(arguments, ScorerSpec)
    from backtalk.cli import train_scorer as training

    training.train_scorer(spec, fresh=arguments.fresh)


@command(
    'backtalk paraphrase "you are so boring" -n 4',
    flag("sentences", nargs="*", metavar="SENTENCE", help="what to paraphrase"),
    flag("--targets", default="", metavar="LIST", help="a target list or file instead of sentences"),
    flag("--limit", type=count, default=0, metavar="N", help="use at most N targets of the list"),
    flag("-n", type=number(int, 1, 1000), default=4, metavar="N", help="paraphrases of each, at most [4]"),
    flag(
        "--paraphraser",
        default="rules",
        metavar="rules|FOLDER",
        help="rules, a trained model, or both separated by a comma [rules]",
    ),
    flag("--model", default="chitchat", help="the model that should know the words [chitchat]"),
    flag("--seed", type=seed, default=1, help="breaks ties [1]"),
    flag("--out", default="", metavar="FILE.jsonl", help="write the paraphrases as a target file"),
    UNMASK,
    DEVICE,
)
def paraphrase(arguments: argparse.Namespace) -> None:
    """Paraphrase sentences or targets, by rules or with a trained model."""
    if bool(arguments.sentences) == bool(arguments.targets):
        raise InputError(
            'give sentences or a list: backtalk paraphrase "you are so boring", or --targets mal'
        )
    if not arguments.targets and not any(text.strip() for text in arguments.sentences):
        raise InputError("the sentence is empty; write what to paraphrase")
    from backtalk.paraphrase.augment import show_paraphrases

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


@command(
    "backtalk list models",
    flag("subject", nargs="?", metavar="|".join(SUBJECTS), help="one of these [all]"),
)
def list_(arguments: argparse.Namespace) -> None:
    """List the available models, searches, scorers, methods, hits, targets, formats or recipes."""
    if arguments.subject is not None and arguments.subject not in SUBJECTS:
        raise unknown("subject", arguments.subject, SUBJECTS)
    from backtalk.cli.listing import show

    for subject in [arguments.subject] if arguments.subject else SUBJECTS:
        show(subject)
