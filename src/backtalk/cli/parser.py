"""The parser: commands are functions, flags come from the fields of specs, and errors are raised."""

import argparse
import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from itertools import pairwise
from textwrap import fill
from types import NoneType
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from backtalk.errors import InputError
from backtalk.registry import helps
from backtalk.specs import ModelOptions, belongs, coerce, flag_names

AddFlags = Callable[["Parser"], object]  # adds one or more flags to a command


class Models(argparse.Action):
    """The first --model is the audited one; the others go to `other_models`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if hasattr(namespace, "other_models"):
            namespace.other_models.append(values)
        else:
            namespace.model, namespace.other_models = values, []


class Parser(argparse.ArgumentParser):
    """Raises an InputError instead of printing the usage."""

    late: "LateFlags | None" = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        if self.late is not None:
            self.late.add_to(self, list(args or ()))
        # Refuse unknown flags here: the main parser would suggest only its own, --help and --version.
        found, left = super().parse_known_args(args, namespace)
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse would read `--flag=--` as an empty list.
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "expected a value, not --")
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        if message.startswith("unrecognized arguments:"):
            flag = message.split()[2]
            setting = flag.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
            if self.late is not None and (owner := belongs(self.late.spec, setting)):
                raise InputError(owner)
            known = [option for action in self._actions for option in action.option_strings]
            close = get_close_matches(flag.split("=")[0], known, n=1)
            mend = f"did you mean {close[0]}?" if close else f"see {self.prog} --help"
            message = f"unknown flag {flag}; {mend}"
        raise InputError(message)


@dataclass(frozen=True)
class Command:
    """A verb of the command line."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], int | None]  # returns the exit status; None is 0
    example: str
    flags: tuple[AddFlags, ...]

    def add_to(self, commands: Any) -> None:
        parser: Parser = commands.add_parser(
            self.name,
            help=self.help,
            description=self.help[0].upper() + self.help[1:] + ".",
            epilog=f"example: {self.example}",
            allow_abbrev=False,
            add_help=False,
        )
        parser.add_argument("-h", "--help", action="help", help="show this help")
        parser.set_defaults(verb=self.run)
        for add in self.flags:
            add(parser)
        many = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
        inputs = [action for action in parser._actions if not action.option_strings]
        named = [many.get(str(action.nargs), "{}").format(action.metavar) for action in inputs]
        parser.usage = parser.usage or " ".join(["%(prog)s", *named, "[FLAG ...]"])


def command(
    example: str, *flags: AddFlags
) -> Callable[[Callable[[argparse.Namespace], int | None]], Command]:
    """Makes a command of a function: its name, with - for _, and its docstring as help."""

    def make(run: Callable[[argparse.Namespace], int | None]) -> Command:
        name = run.__name__.strip("_").replace("_", "-")
        text = " ".join((run.__doc__ or "").split()).removesuffix(".")
        return Command(name, text[:1].lower() + text[1:], run, example, flags)

    return make


# Flags


def flag(*names: str, **settings: Any) -> AddFlags:
    """One flag, described as `ArgumentParser.add_argument` takes it; its `type` is that of a spec's field."""
    if hint := settings.get("type"):
        settings["type"] = lambda text: coerce(text, hint, names[-1])
        if get_origin(hint) is Literal:
            settings["metavar"] = "|".join(get_args(hint))
    return lambda parser: parser.add_argument(*names, **settings)


def flags_of(kind: type[Any]) -> AddFlags:
    return lambda parser: add_flags(parser, kind)


def add_flags(parser: Any, kind: type[Any], but: type[Any] | None = None) -> None:
    """Adds a flag for each field that the spec `but` does not have. A flag that is not typed is absent from
    the parsed arguments, so that a YAML file can set it."""
    docs, hints = field_help(kind), get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        hint = get_args(hint)[0] if NoneType in get_args(hint) else hint  # it may be left out
        if field.name not in flag_names(kind, but) or is_dataclass(hint) or get_origin(hint) is tuple:
            continue
        shown = ("on" if field.default else "off") if hint is bool else field.default
        default = "" if field.default in (MISSING, "", None) else f" [{shown}]"
        settings: dict[str, Any] = {
            "default": argparse.SUPPRESS,
            "help": (docs.get(field.name, "") + default).replace("%", "%%"),
        }
        if hint is bool:
            settings["action"] = argparse.BooleanOptionalAction
        elif get_origin(hint) is Literal:
            settings["metavar"] = "|".join(filter(None, get_args(hint)))
        else:
            settings["metavar"] = {int: "N", float: "X", str: "TEXT"}.get(hint, "NAME")
        if field.name == "model" and "other_models" in hints:
            settings["action"] = Models
        parser.add_argument(f"--{field.name.replace('_', '-')}", **settings)


@dataclass(frozen=True)
class LateFlags:
    """Flags of a spec's parts, which depend on other arguments such as --search."""

    spec: type[Any]
    usage: str
    parts: Callable[[list[str]], Mapping[str, type[Any]]]
    """Returns {heading: config class} for the arguments."""
    more: str
    """Says in the help how to see these flags. The searches or methods follow."""
    group: str

    def __call__(self, parser: Parser) -> None:
        parser.late, parser.usage = self, self.usage
        parser.formatter_class = partial(argparse.RawDescriptionHelpFormatter, max_help_position=28)

    def add_to(self, parser: Parser, args: list[str]) -> None:
        for title, kind in self.parts(args).items():
            add_flags(parser.add_argument_group(title), kind, self.spec)
        if wants_help(args):
            lines = [f"  {name:<13} {text}" for name, text in helps(self.group).items()]
            parser.description = "\n".join([fill(str(parser.description), 79), self.more, *lines])


def field_help(kind: type[Any]) -> dict[str, str]:
    """The docstring under each field of a dataclass, inherited fields included, read from the source."""
    found: dict[str, str] = {}
    for own in filter(is_dataclass, reversed(kind.__mro__)):
        for node, following in pairwise(_class_bodies(own.__module__)[own.__name__]):
            match node, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                    found[name] = " ".join(str(text).split())
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


# Flags that commands share

CONFIG = flag("--config", metavar="SPEC.YAML", help="read settings from this file; flags override it")
DEVICE = flag("--device", default="auto", help="auto, cpu, cuda or cuda:N [auto]")
FRESH = flag("--fresh", action="store_true", help="start over in a folder that is in use")
UNMASK = flag("--unmask", action="store_true", help="print offensive text in full")
TRUST = flag("--trust-remote-code", action="store_true", help="run code that a Hugging Face model ships")
CONSENT = (
    flag("--yes", action="store_true", help="allow requests to other machines without asking"),
    flag("--insecure", action="store_true", help="allow unencrypted http to other machines"),
    TRUST,
)
MODEL_OPTIONS = flags_of(ModelOptions)


def wants_help(args: list[str]) -> bool:
    return "--help" in args or "-h" in args
