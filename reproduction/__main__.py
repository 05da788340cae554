"""`python -m reproduction`: the commands of backtalk with the papers' corpus formats and methods, a command
for each study, `enumerate`, `train-paper` and `label`."""

import argparse
from importlib import import_module
from pathlib import Path

from backtalk.cli import main, run
from backtalk.cli.config import spec_from
from backtalk.cli.parser import CONFIG, FRESH, Command, command, flag, flags_of
from backtalk.cli.runs import RUNS
from backtalk.errors import InputError
from backtalk.registry import is_transformer
from backtalk.specs import refuse_set
from reproduction.runner import run_study
from reproduction.spec import EnumerateSpec, PaperTrainSpec, StudySpec

PROGRAM = "python -m reproduction"
STUDIES = {
    "ast": "Hardy et al. 2024: an adversary that learns to lead a model to toxicity",
    "egregious": "He & Glass 2019: inputs that make a model say egregious things",
    "hardening": "hit rate against perplexity for every way to harden, behind the defaults of harden",
    "lora": "a habit planted in a Hugging Face model and trained away",
    "negative": "He & Glass 2020: negative training",
    "risks": "how often a model says what it must not say, tested where the risk is known",
    "reverse": "Liu et al. 2019: a generator that writes inputs for a model it can't see into",
    "transformers": "white-box search on a Hugging Face model",
}
OWN = ("hardening", "lora", "transformers")  # studies of no paper
SHIPPED_DATA = ("lora", "risks", "transformers")  # studies that need no --data


def _study(arguments: argparse.Namespace) -> int:
    study, spec = arguments.command, spec_from(arguments, StudySpec)
    if not spec.data and study not in SHIPPED_DATA:
        raise InputError("name the data: --data DIR, or --data embedded for what ships with backtalk")
    if study not in ("ast", "lora", "transformers"):
        refuse_set(spec, {"model"}, "is for the studies ast, lora and transformers; leave it out")
    if spec.model and not is_transformer(spec.model):
        raise InputError(f"--model {spec.model} is no Hugging Face model; name hf/NAME-OR-FOLDER or smollm2")
    module = f"reproduction.own.{study}" if study in OWN else f"reproduction.{study}.study"
    return run_study(import_module(module).STUDY, spec)


@command(
    f"{PROGRAM} enumerate --model characters --length 4 --text ptb.train.txt",
    CONFIG,
    flags_of(EnumerateSpec),
    flag("--out", default="", metavar="FOLDER", help="the folder [runs/enumerate-MODEL-LENGTH]"),
    FRESH,
)
def enumerate_(arguments: argparse.Namespace) -> None:
    """Try every input of a bounded space on a model with a small vocabulary."""
    spec = spec_from(arguments, EnumerateSpec)
    if not spec.model:
        raise InputError("name a model: --model FOLDER; reproduction/recipes/characters-2019.yaml trains one")
    out = Path(arguments.out or RUNS / f"enumerate-{Path(spec.model).name}-{spec.length}")
    from reproduction.enumeration.flow import enumerate_model
    from reproduction.enumeration.outputs import print_summary

    print_summary(enumerate_model(spec, out, fresh=arguments.fresh), out)


@command(
    f"{PROGRAM} train-paper --config reproduction/recipes/switchboard-2019.yaml --data SWDA --out model",
    CONFIG,
    FRESH,
    flags_of(PaperTrainSpec),
)
def train_paper(arguments: argparse.Namespace) -> None:
    """Train a model as in the papers of He & Glass."""
    spec = spec_from(arguments, PaperTrainSpec)
    from backtalk.cli.train import train_model

    train_model(spec, fresh=arguments.fresh)


@command(
    f"{PROGRAM} label CORPORA labelled --family words",
    flag("folder", metavar="CORPORA", help="folder of public corpora; recipes/toxicity.yaml lists its files"),
    flag("out", metavar="OUT", help="folder for the labelled texts"),
    flag("--family", choices=("words", "letters", "encoder"), default="words", help="of the scorer [words]"),
)
def label(arguments: argparse.Namespace) -> None:
    """Make the labelled texts of an embedded toxicity scorer from public corpora."""
    from reproduction.data.mixture import write_splits

    write_splits(Path(arguments.folder), arguments.family, Path(arguments.out))


COMMANDS = (
    *(
        Command(
            name,
            what,
            _study,
            f"{PROGRAM} {name}{'' if name in SHIPPED_DATA else ' --data embedded'} --size mini --out study",
            (CONFIG, flags_of(StudySpec)),
        )
        for name, what in STUDIES.items()
    ),
    enumerate_,
    train_paper,
    label,
)


def run_command(argv: list[str]) -> int:
    """The exit status of one command."""
    return run(argv, PROGRAM, COMMANDS)


if __name__ == "__main__":
    main(None, PROGRAM, COMMANDS)
