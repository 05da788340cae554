"""Settings of a command: its flags over the YAML file of --config, and what the user agreed to."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtalk.errors import InputError, shown
from backtalk.specs import ModelOptions, Spec, build_spec, flag_names, with_settings
from backtalk.terminal import say
from backtalk.types import Origin, marked

if TYPE_CHECKING:
    from backtalk.audit.consent import Consent

LARGEST_FILE = 1 << 20  # in bytes; the largest shipped spec has about a thousand
DEEPEST = 4  # levels of nesting, the values included


def spec_from(arguments: argparse.Namespace, kind: type[Spec]) -> Spec:
    """The spec of --config with the flags over it; an error names the file or the flag."""
    read = marked(read_yaml(Path(arguments.config)), Origin.CONFIG) if arguments.config else {}
    if isinstance(models := read.get("model"), list) and models and "other_models" in flag_names(kind):
        read |= {"model": models[0], "other_models": models[1:]}
    spec, typed = build_spec(kind, read, arguments.config or "spec"), vars(arguments)
    for name, value in read.items():
        before = value.get("name") if isinstance(value, dict) else None
        if before and typed.get(name, before) != before:
            both = f"{arguments.config} has settings for {before}, and --{name} says {typed[name]}"
            raise InputError(f"{both}; leave one out")
    return with_settings(spec, typed)


def model_options_from(arguments: argparse.Namespace) -> ModelOptions:
    """For a command without a spec."""
    return with_settings(ModelOptions(), vars(arguments))


def values_of(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names}


def consent_from(arguments: argparse.Namespace) -> Consent:
    from backtalk.audit.consent import Consent

    can_ask = sys.stdin is not None and sys.stdin.isatty()
    return Consent(arguments.insecure, arguments.yes, trusted_by(arguments), _ask if can_ask else None)


def _ask(question: str) -> bool:
    say(f"{question} [y/N] ", end="", file=sys.stderr)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def trusted_by(arguments: argparse.Namespace) -> tuple[str, ...]:
    """The models whose own code may run: those typed with --trust-remote-code."""
    typed = [getattr(arguments, key, "") for key in ("model", "name", "adversary_model")]
    typed += getattr(arguments, "other_models", [])
    return tuple(filter(None, typed)) if getattr(arguments, "trust_remote_code", False) else ()


def chosen_values(arguments: argparse.Namespace, *flags: str) -> list[str]:
    """The values of flags, as typed or from --config, or empty."""
    return _chosen({flag: getattr(arguments, flag, "") for flag in flags}, arguments.config)


def early_values(args: list[str], *flags: str) -> list[str]:
    """The values of flags before the arguments are parsed: as typed, or from --config, or empty."""
    return _chosen({flag: _typed(args, flag) for flag in flags}, _typed(args, "config"))


def _chosen(typed: dict[str, str], config: str) -> list[str]:
    """In the file a value is a name, a list that begins with it, or a mapping with a name and settings."""
    file = read_yaml(Path(config)) if config else {}
    firsts = {flag: value[0] if isinstance(value, list) and value else value for flag, value in file.items()}
    named = {flag: value.get("name") if isinstance(value, dict) else value for flag, value in firsts.items()}
    texts = {flag: name for flag, name in named.items() if isinstance(name, str)}
    return [value or texts.get(flag, "") for flag, value in typed.items()]


def _typed(args: list[str], flag: str) -> str:
    for place in range(len(args) - 1, -1, -1):
        word, equals, value = args[place].partition("=")
        if word == f"--{flag}":
            return value if equals else "".join(args[place + 1 : place + 2])
    return ""


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses deep nesting, aliases, which can expand to any size, and repeated keys."""

        depth = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            self.depth += 1
            if self.depth > DEEPEST or self.check_event(yaml.AliasEvent):
                what = "a spec has no lists in lists and no aliases"
                raise InputError(f"{path}: {what}; write `key: value` lines")
            node = super().compose_node(parent, index)
            self.depth -= 1
            seen = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                if (name := str(key.value).replace("-", "_")) in seen:
                    where = f"{path}, line {key.start_mark.line + 1}"
                    raise InputError(f"{where}: the key {shown(key.value)} is given twice; leave one out")
                seen.add(name)
            return node

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise InputError(f"{path} is too large to be a spec; it should hold `key: value` lines")
        value = yaml.load(data.decode("utf-8"), Loader)
        repr(value)  # raises a ValueError for a number with too many digits
    except FileNotFoundError:
        raise InputError(f"no spec file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read as a spec: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError: a date that does not exist
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} should hold `key: value` lines, one a flag")
    return value
