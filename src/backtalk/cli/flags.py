"""One flag for each field of a spec or config; the sentence under a field is its help."""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args, get_origin, get_type_hints

from backtalk.specs import flag_names


def add_flags(parser: Any, kind: type[Any], but: type[Any] | None = None) -> None:
    """One flag a field, to a parser or a group of it. Flags that were not given are left out, so that a YAML
    file can fill them."""
    docs, hints = field_help(kind), get_type_hints(kind)
    for field in fields(kind):
        if field.name not in flag_names(kind, but) or is_dataclass(hints[field.name]):
            continue
        flag = "--" + field.name.replace("_", "-")
        default = "" if field.default in (MISSING, "") else f" [{_show(field.default)}]"
        text, default = (part.replace("%", "%%") for part in (docs.get(field.name, ""), default))
        if hints[field.name] is bool:
            parser.add_argument(
                flag,
                action=argparse.BooleanOptionalAction,
                default=argparse.SUPPRESS,
                help=text + default,
            )
            continue
        choices = get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else ()
        metavar = "|".join(filter(None, choices)) if choices else _METAVARS.get(hints[field.name], "NAME")
        parser.add_argument(flag, metavar=metavar, default=argparse.SUPPRESS, help=text + default)


_METAVARS: dict[Any, str] = {int: "N", float: "X", str: "TEXT"}


def field_help(kind: type[Any]) -> dict[str, str]:
    """The docstring under each field of a dataclass, inherited fields included, read from the source."""
    found: dict[str, str] = {}
    for own in reversed(kind.__mro__):
        if not is_dataclass(own):
            continue
        for node, following in pairwise(_class_bodies(own.__module__)[own.__name__]):
            if (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
            ):
                found[node.target.id] = " ".join(str(following.value.value).split())
    return found


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """What stands in each class of a module; read once, since every command asks for many classes."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}


def _show(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
