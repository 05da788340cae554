"""The command `backtalk`: reads flags and YAML into a spec, calls the verb, and turns errors into one line.

argparse rather than a framework: flags are generated from the specs, every error is ours to word, and
`--help` starts in a tenth of a second. Nothing heavy is imported before a verb needs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from backtalk import __version__
from backtalk.errors import InputError, unknown
from backtalk.spec import AuditSpec, TrainSpec, add_flags, build_spec, read_yaml
from backtalk.terminal import printable

RUNS = Path("runs")
SHOWN_PROBLEMS = 20
BENCH_SHAPES = ("embedded", "paper-switchboard", "paper-ubuntu")


class Parser(argparse.ArgumentParser):
    """Errors are raised, not printed with a usage block."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        # A command refuses what it does not know itself: handed up, only --help and --version were compared.
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            flag = message.split()[2]
            known = [option for action in self._actions for option in action.option_strings]
            close = get_close_matches(flag.split("=")[0], known, n=1)
            message = f"unknown flag {flag}; " + (
                f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            )
        raise InputError(message)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="backtalk",
        description="Finds what makes a dialogue model say what it must not say.",
        epilog="Each command has its own --help with an example.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"backtalk {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    _add_audit(commands)
    _add_resume(commands)
    _add_report(commands)
    _add_verify(commands)
    _add_export(commands)
    _add_train(commands)
    _add_chat(commands)
    _add_bench(commands)
    _add_list(commands)
    return parser


def main(argv: list[str] | None = None) -> None:
    status = run(sys.argv[1:] if argv is None else argv)
    sys.stdout.flush()
    sys.exit(status)


def run(argv: list[str]) -> int:
    """Runs one command; 0 done, 2 bad usage or input. Anything else is a crash and shows its traceback."""
    parser = build_parser()
    try:
        if argv and not argv[0].startswith("-"):
            verbs = _verbs(parser)
            if argv[0] not in verbs:
                raise unknown("command", argv[0], verbs)
        arguments = parser.parse_args(argv)
        if arguments.command is None:
            parser.print_help()
            return 0
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except InputError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail("stopped; what was finished is kept, and the same command again goes on from there")
    except BrokenPipeError:
        # The reader of our output went away (`| head`): not an error, but nothing more can be written.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None and error.errno is None:
            raise
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{error.strerror or error}")


def _fail(message: str) -> int:
    print(f"backtalk: {printable(' '.join(message.split()))}", file=sys.stderr)
    return 2


def _verbs(parser: argparse.ArgumentParser) -> list[str]:
    return [
        name
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name in action.choices
    ]


def _command(commands: Any, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=f"example: {example}",
        allow_abbrev=False,
    )
    return parser


# --- audit, resume, report, verify, export -------------------------------------------------------------


def _add_audit(commands: Any) -> None:
    parser = _command(
        commands,
        "audit",
        "search for inputs that make a model say what it must not say",
        "backtalk audit --model my-model --targets never-say.txt --max-time 10m",
    )
    parser.add_argument("--config", metavar="SPEC.YAML", help="read these flags from a file; flags win")
    add_flags(parser, AuditSpec)
    parser.add_argument("--out", default="", metavar="FOLDER", help="the run folder [runs/DATE-MODEL-SEARCH]")
    parser.add_argument("--fresh", action="store_true", help="start anew even where the same run exists")
    _add_gates(parser)
    parser.set_defaults(verb=_audit)


def _add_gates(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fail-over",
        type=_rate,
        metavar="RATE",
        help="exit with 3 if the hit rate may be over this (the interval's upper end); 0.1 or 10%%",
    )
    parser.add_argument(
        "--baseline", default="", metavar="RUN", help="exit with 3 if significantly worse than this run"
    )
    parser.add_argument("--unmask", action="store_true", help="print offensive sentences in full")


def _gates(arguments: argparse.Namespace) -> Any:
    from backtalk.outcome import Gates

    return Gates(arguments.fail_over, arguments.baseline, arguments.unmask)


def _audit(arguments: argparse.Namespace) -> int:
    spec = _spec_from(arguments, AuditSpec)
    if arguments.config and "model" not in vars(arguments) and spec.model.startswith("py:"):
        raise InputError("a py: model runs code and is taken from the command line alone; add --model py:...")
    from backtalk.audit import audit

    return audit(spec, _gates(arguments), arguments.out, RUNS, arguments.fresh)


def _add_run_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", metavar="RUN", help="the run folder [the latest under runs/]")


def _run_folder(arguments: argparse.Namespace) -> Path:
    from backtalk.store import latest_run

    return Path(arguments.run) if arguments.run else latest_run(RUNS)


def _add_resume(commands: Any) -> None:
    parser = _command(
        commands,
        "resume",
        "go on with a run that was stopped or killed",
        "backtalk resume runs/2026-01-31-chitchat-gibbs",
    )
    _add_run_argument(parser)
    _add_gates(parser)
    parser.set_defaults(verb=_resume)


def _resume(arguments: argparse.Namespace) -> int:
    folder = _run_folder(arguments)
    from backtalk.audit import resume

    return resume(folder, _gates(arguments))


def _add_report(commands: Any) -> None:
    parser = _command(
        commands,
        "report",
        "show a run's table and write its page again; needs no model",
        "backtalk report --unmask",
    )
    _add_run_argument(parser)
    _add_gates(parser)
    parser.set_defaults(verb=_report)


def _report(arguments: argparse.Namespace) -> int:
    from backtalk.outcome import show_run
    from backtalk.store import Run

    with Run.open(_run_folder(arguments)) as run:
        return show_run(run, _gates(arguments))


def _add_verify(commands: Any) -> None:
    parser = _command(
        commands,
        "verify",
        "load the model anew and recompute every finding of a run; exit 3 if one can't be reproduced",
        "backtalk verify runs/2026-01-31-chitchat-gibbs",
    )
    _add_run_argument(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [auto]")
    parser.set_defaults(verb=_verify)


def _verify(arguments: argparse.Namespace) -> int:
    folder = _run_folder(arguments)
    from backtalk.verify import verify

    verdict = verify(folder, arguments.device)
    for problem in verdict.problems[:SHOWN_PROBLEMS]:
        print(f"  {printable(problem)}")
    if len(verdict.problems) > SHOWN_PROBLEMS:
        print(f"  ... and {len(verdict.problems) - SHOWN_PROBLEMS} more")
    print(
        f"{folder}: {verdict.confirmed} of {verdict.hits} hits confirmed, "
        f"{verdict.findings} findings recomputed; {'FAILED' if verdict.problems else 'verified'}."
    )
    return 3 if verdict.problems else 0


def _add_export(commands: Any) -> None:
    parser = _command(
        commands,
        "export",
        "write a run's findings as JSONL, one object a finding",
        "backtalk export -o findings.jsonl",
    )
    _add_run_argument(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="where to [standard output]")
    parser.set_defaults(verb=_export)


def _export(arguments: argparse.Namespace) -> int:
    from backtalk.outcome import export
    from backtalk.store import Run

    with Run.open(_run_folder(arguments)) as run:
        export(run, Path(arguments.output) if arguments.output else None)
    return 0


# --- bench ---------------------------------------------------------------------------------------------


def _add_bench(commands: Any) -> None:
    parser = _command(
        commands,
        "bench",
        "measure the speed of a search against the ceiling of plain matrix products",
        "backtalk bench search --shape paper-switchboard",
    )
    parser.add_argument("what", metavar="search", help="what to measure")
    parser.add_argument(
        "--shape", default="embedded", metavar="|".join(BENCH_SHAPES), help="sizes to measure at [embedded]"
    )
    parser.add_argument("--arch", default="attention", metavar="attention|last-h", help="[attention]")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [auto]")
    parser.set_defaults(verb=_bench)


def _bench(arguments: argparse.Namespace) -> int:
    for what, value, known in (
        ("benchmark", arguments.what, ["search"]),
        ("shape", arguments.shape, BENCH_SHAPES),
        ("arch", arguments.arch, ["attention", "last-h"]),
    ):
        if value not in known:
            raise unknown(what, value, known)
    import torch

    from backtalk.bench import SHAPES, bench_search

    print(f"{arguments.shape}, {arguments.arch}, {torch.get_num_threads()} threads, best of five:")
    for row in bench_search(SHAPES[arguments.shape], arguments.arch == "attention", arguments.device):
        share = "" if row.ceiling_share is None else f"{row.ceiling_share:7.1%} of the ceiling"
        print(f"  {row.name:<45}{row.candidates_per_s:>12,.0f} candidates/s {share}".rstrip())
    return 0


# --- train ---------------------------------------------------------------------------------------------


def _add_train(commands: Any) -> None:
    parser = _command(
        commands,
        "train",
        "train a dialogue model and its language model by maximum likelihood",
        "backtalk train --data pairs.tsv --hidden 256 --out my-model",
    )
    parser.add_argument("--config", metavar="SPEC.YAML", help="read these flags from a file; flags win")
    parser.add_argument("--fresh", action="store_true", help="start anew in a folder that is already in use")
    add_flags(parser, TrainSpec)
    parser.set_defaults(verb=_train)


def _train(arguments: argparse.Namespace) -> int:
    spec = _spec_from(arguments, TrainSpec)
    from backtalk.train import train_model

    train_model(spec, fresh=arguments.fresh)
    return 0


def _spec_from(arguments: argparse.Namespace, kind: type[Any]) -> Any:
    given = vars(arguments)
    values = read_yaml(Path(arguments.config)) if arguments.config else {}
    base = build_spec(kind, values, arguments.config or "spec")
    flags = {name: given[name] for name in kind.__dataclass_fields__ if name in given}
    whole = {**{name: getattr(base, name) for name in kind.__dataclass_fields__}, **flags}
    return build_spec(kind, whole, f"backtalk {arguments.command}")


# --- chat ----------------------------------------------------------------------------------------------


def _add_chat(commands: Any) -> None:
    parser = _command(
        commands,
        "chat",
        "talk with a model; lines from a pipe are answered one by one",
        'backtalk chat --say "hello there" --probabilities',
    )
    parser.add_argument("--model", default="chitchat", help="the model's name or folder [chitchat]")
    parser.add_argument("--say", metavar="TEXT", action="append", help="say this and leave; may be repeated")
    parser.add_argument("--probabilities", action="store_true", help="show each word's probability")
    parser.add_argument("--sample", action="store_true", help="sample replies instead of the greedy ones")
    parser.add_argument("--beam", type=_positive, metavar="N", help="show the N likeliest replies")
    parser.add_argument("--temperature", type=_above_zero, default=1.0, help="with --sample [1.0]")
    parser.add_argument("--top-k", type=_positive, default=0, help="with --sample: the K likeliest words")
    parser.add_argument("--top-p", type=_share, default=1.0, help="with --sample: words up to this mass")
    parser.add_argument("--seed", type=_natural, default=0, help="with --sample [0]")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [auto]")
    parser.set_defaults(verb=_chat)


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


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _natural(text: str) -> int:
    return 0 if text == "0" else _positive(text)


def _above_zero(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def _rate(text: str) -> float:
    value = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write 0.1 or 10%")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


# --- list ----------------------------------------------------------------------------------------------

SUBJECTS = ("models", "searches", "hits", "targets", "formats", "recipes")


def _add_list(commands: Any) -> None:
    parser = _command(
        commands,
        "list",
        "show what there is to choose from: models, searches, hits, targets, formats, recipes",
        "backtalk list models",
    )
    parser.add_argument("subject", nargs="?", metavar="|".join(SUBJECTS), help="one of them; all if left out")
    parser.set_defaults(verb=_list)


def _list(arguments: argparse.Namespace) -> int:
    if arguments.subject is not None and arguments.subject not in SUBJECTS:
        raise unknown("subject", arguments.subject, SUBJECTS)
    from backtalk.listing import show

    for subject in [arguments.subject] if arguments.subject else SUBJECTS:
        show(subject)
    return 0
