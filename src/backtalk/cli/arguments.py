"""How arguments are read: a parser that raises its errors, the flags that commands share, numbers, specs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

from backtalk.cli.config_file import read_yaml
from backtalk.cli.flags import add_flags
from backtalk.errors import InputError
from backtalk.specs import Range, Spec, build_spec, check_values, coerce, flag_names
from backtalk.specs.model import ModelOptions
from backtalk.terminal import say
from backtalk.types import Origin, marked

if TYPE_CHECKING:
    from backtalk.audit.consent import Consent

Number = TypeVar("Number", int, float)


def said(args: list[str], *flags: str) -> list[str]:
    """What the arguments, or else the YAML file that they name, say for each flag; empty: nothing."""
    path = _typed(args, "config")
    file = read_yaml(Path(path)) if path else {}
    return [_typed(args, flag) or _named(file.get(flag)) for flag in flags]


def _typed(args: list[str], flag: str) -> str:
    """The value that was typed last for a flag."""
    for place in range(len(args) - 1, -1, -1):
        word, equals, value = args[place].partition("=")
        if word == f"--{flag}":
            return value if equals else "".join(args[place + 1 : place + 2])
    return ""


def _named(value: Any) -> str:
    """The name in a YAML value: the value itself, or the `name` key of a mapping with settings."""
    named = value.get("name") if isinstance(value, dict) else value
    return named if isinstance(named, str) else ""


class Parser(argparse.ArgumentParser):
    """Errors are raised, not printed with a usage block."""

    complete: Callable[[Parser, list[str]], None] | None = None
    """Adds the flags that depend on what the arguments choose."""
    elsewhere: Callable[[str], str] | None = None
    """A sentence for a setting that belongs to something that was not chosen; empty: to nothing."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        if self.complete is not None:
            self.complete(self, list(args or ()))
        # A command refuses what it does not know itself: handed up, only --help and --version were compared.
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # `--flag=--`: argparse drops the strokes, and the flag would get an empty list.
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected a value, not --")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            flag = message.split()[2]
            setting = flag.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
            if self.elsewhere is not None and (told := self.elsewhere(setting)):
                raise InputError(told)
            known = [option for action in self._actions for option in action.option_strings]
            close = get_close_matches(flag.split("=")[0], known, n=1)
            message = f"unknown flag {flag}; " + (
                f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            )
        raise InputError(message)


def wants_help(args: list[str]) -> bool:
    return "--help" in args or "-h" in args


def add_parts(parser: Parser, spec: type[Any], parts: Mapping[str, tuple[type[Any], str]]) -> None:
    """The flags of configs by the spec's field, each under a heading of its own."""
    for kind, title in parts.values():
        add_flags(parser.add_argument_group(title), kind, spec)
    parser.set_defaults(configs={name: kind for name, (kind, _) in parts.items()})


def add_command(
    commands: Any, name: str, verb: Callable[[argparse.Namespace], int], help_text: str, example: str
) -> Parser:
    parser: Parser = commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=f"example: {example}",
        allow_abbrev=False,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action="help", help="show this help")
    parser.set_defaults(verb=verb)
    return parser


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="SPEC.YAML", help="read these flags from a file; flags win")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N [auto]")


def add_consent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="agree to requests beyond this machine")
    parser.add_argument("--insecure", action="store_true", help="allow plain http beyond this machine")
    add_trust(parser)


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust-remote-code",
        action="store_true",
        help="run the code that a Hugging Face model brings",
    )


def consent_from(arguments: argparse.Namespace) -> Consent:
    from backtalk.audit.consent import Consent

    can_ask = sys.stdin is not None and sys.stdin.isatty()
    return Consent(arguments.insecure, arguments.yes, trusted_by(arguments), _ask if can_ask else None)


def _ask(question: str) -> bool:
    say(f"{question} [y/N] ", end="", file=sys.stderr)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def trusted_by(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The models whose own code may run: those that were typed beside --trust-remote-code."""
    typed = [getattr(arguments, key, "") for key in ("model", "name", "adversary_model")]
    return tuple(filter(None, typed)) if arguments.trust_remote_code else ()


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """How a Hugging Face model is read, for commands without a spec."""
    add_flags(parser, ModelOptions)


def model_options_from(arguments: argparse.Namespace) -> ModelOptions:
    names = [field.name for field in fields(ModelOptions) if hasattr(arguments, field.name)]
    values = {name: getattr(arguments, name) for name in names}
    return build_spec(ModelOptions, values, "")


def spec_from(arguments: argparse.Namespace, kind: type[Spec]) -> Spec:
    """The spec of --config with the given flags over it; each is checked where it came from."""
    read = marked(read_yaml(Path(arguments.config)), Origin.CONFIG) if arguments.config else {}
    values, given = vars(build_spec(kind, read, arguments.config or "spec")), vars(arguments)
    parts = given.get("configs", {})
    flags = {name: value for name, value in given.items() if name in values and name not in parts}
    for name, part in parts.items():
        before = values[name]
        if type(before) is not part:  # the command line names another one than the file
            if isinstance(read.get(name), dict):
                raise InputError(
                    f"{arguments.config} has settings for {before.name}, and --{name} says {part.name}; "
                    "leave one out"
                )
            before = part()
        own = {flag: given[flag] for flag in flag_names(part, kind) if flag in given}
        flags[name] = replace(before, **check_values(part, own, ""))
    return build_spec(kind, values | flags, "")


# Types of numbers


def whole(least: int, most: int) -> Callable[[str], int]:
    return _ranged(int, least, most)


def number(least: float, most: float) -> Callable[[str], float]:
    return _ranged(float, least, most)


def _ranged(kind: type[Number], least: float, most: float) -> Callable[[str], Number]:
    """Reads a number as a field of a spec is read."""

    def read(text: str) -> Number:
        try:
            value: Number = coerce(text, Annotated[kind, Range(least, most)], "it")
            return value
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


seed = whole(0, 2**32 - 1)
count = whole(0, 10**9)
port = whole(0, 65_535)
share = number(1e-9, 1)


def rate(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write 0.1 or 10%")
    return value
