"""The verb study: a paper's tables and figures, reproduced side by side with the paper's numbers."""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from backtalk.cli.arguments import add_command, add_config, spec_from
from backtalk.cli.flags import add_flags
from backtalk.errors import InputError, unknown
from backtalk.registry import is_transformer
from backtalk.specs import refuse_set
from backtalk.specs.study import StudySpec

STUDIES = {
    "ast": "reproduction.ast.study",
    "egregious": "reproduction.egregious.study",
    "hardening": "reproduction.hardening.study",
    "lora": "reproduction.lora.study",
    "negative": "reproduction.negative.study",
    "reverse": "reproduction.reverse.study",
    "transformers": "reproduction.transformers.study",
}
SUMMARISED = ("egregious", "reverse")
"""Those whose results beside the page are too brief to go on from."""
SHIPPED_DATA = ("lora", "transformers")
"""Those that need what ships alone."""


def add_study(commands: Any) -> None:
    parser = add_command(
        commands,
        "study",
        _study,
        "reproduce a paper's tables and figures side by side with its numbers",
        "backtalk study egregious --data embedded --size mini --out study",
    )
    parser.add_argument(
        "study",
        metavar="|".join(STUDIES),
        help="Hardy et al. 2024; He & Glass 2019; the curve behind the defaults of harden; a planted habit "
        "trained away; He & Glass 2020; Liu et al. 2019; white-box search on a Hugging Face model",
    )
    add_config(parser)
    add_flags(parser, StudySpec)


def _study(arguments: argparse.Namespace) -> int:
    if arguments.study not in STUDIES:
        raise unknown("study", arguments.study, STUDIES)
    spec = spec_from(arguments, StudySpec)
    if not spec.data and arguments.study not in SHIPPED_DATA:
        raise InputError("name the data: --data DIR, or --data embedded for what ships with backtalk")
    if arguments.study not in ("ast", *SHIPPED_DATA):
        refuse_set(spec, {"model"}, "is for the studies ast, lora and transformers; leave it out")
    if spec.model and not is_transformer(spec.model):
        raise InputError(f"--model {spec.model} is no Hugging Face model; name hf/NAME-OR-FOLDER or smollm2")
    if arguments.study in SUMMARISED:
        refuse_set(spec, {"records"}, "can't be used here: beside this study's page stands a summary alone")
    code: int = import_module(STUDIES[arguments.study]).run_study(spec)
    return code
