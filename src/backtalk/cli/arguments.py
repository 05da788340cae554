"""How arguments are read: a parser that raises its errors, the flags that commands share, numbers, specs."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from backtalk.errors import InputError
from backtalk.spec import ModelOptions, Spec, add_flags, build_spec, read_yaml
from backtalk.types import Origin, marked

if TYPE_CHECKING:
    from backtalk.consent import Consent


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


def add_command(
    commands: Any, name: str, verb: Callable[[argparse.Namespace], int], help_text: str, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=help_text,
        description=help_text[0].upper() + help_text[1:] + ".",
        epilog=f"example: {example}",
        allow_abbrev=False,
    )
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
        help="run the code that comes with a Hugging Face model; read it first",
    )


def consent_from(arguments: argparse.Namespace) -> Consent:
    from backtalk.consent import Consent

    return Consent(arguments.insecure, arguments.yes, trusted_by(arguments))


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
    values = vars(build_spec(kind, read, arguments.config or "spec"))
    flags = {name: value for name, value in vars(arguments).items() if name in values}
    return build_spec(kind, values | flags, "")


# Types of numbers


def positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def natural(text: str) -> int:
    return 0 if text == "0" else positive(text)


def above_zero(text: str) -> float:
    value = _number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def not_negative(text: str) -> float:
    value = _number(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or above")
    return value


def number(text: str) -> float:
    value = _number(text)
    if not -float("inf") < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def rate(text: str) -> float:
    value = _number(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate; write 0.1 or 10%")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
