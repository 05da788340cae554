"""Settings: flags, YAML files and stored runs become frozen dataclasses.

A spec holds the settings of a verb, and a config those of a search or a method. Each field is a flag and a
YAML key; its type says which values are allowed, and its docstring is the help. Unknown keys and bad values
are errors that name the nearest good one.
"""

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from backtalk.errors import InputError, check_text, shown, unknown
from backtalk.types import Name

# Types of fields. `Annotated[type, check]` calls check(value, name), which raises an InputError.


@dataclass(frozen=True)
class Range:
    least: float
    most: float

    def __call__(self, value: float, where: str) -> None:
        if not self.least <= value <= self.most:  # false for NaN
            ends = [f"{end:,}" if isinstance(end, int) else f"{end:g}" for end in (self.least, self.most)]
            raise InputError(f"{where} should not be {shown(value)}; the range is {' to '.join(ends)}")


LONGEST_S = 10**8


def parse_duration(text: str, where: str = "--max-time") -> float:
    """Seconds of 90s, 10m, 2h or a plain number; 0 for an empty text."""
    if not text:
        return 0.0
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1])
    try:
        value = float(text[:-1] if unit else text) * (unit or 1)
    except ValueError:
        value = -1.0
    if not 0 < value <= LONGEST_S:
        raise InputError(f"{where} should read like 90s, 10m or 2h, not {shown(text)}")
    return value


def parse_share(text: str, where: str, most: float = math.inf) -> float:
    """0.05 of 5% or 0.05; from 0 to less than `most`."""
    value: float = coerce(text, float, where)
    if not 0 <= value < most:
        raise InputError(f"{where} should read like 5% or 0.05, not {shown(text)}")
    return value


Duration = Annotated[str, parse_duration]
Increase = Annotated[str, parse_share]
Percentage = Annotated[str, partial(parse_share, most=1.0)]
Count = Annotated[int, Range(0, 10**9)]
Seed = Annotated[int, Range(0, 2**32 - 1)]
Width = Annotated[int, Range(1, 16_384)]  # units of a layer
Steps = Annotated[int, Range(1, 100_000)]  # or epochs, iterations
Share = Annotated[float, Range(0, 1)]
Weight = Annotated[float, Range(0, 1000)]  # of a loss term, or a learning rate
Dropped = Annotated[float, Range(0, 0.999)]
Above = Annotated[float, Range(1e-9, 1e6)]  # above 0
Seconds = Annotated[float, Range(0, 10**9)]
Rank = Annotated[int, Range(1, 1024)]
Words = Annotated[int, Range(1, 1000)]  # or tokens of a text
ReplyTokens = Annotated[int, Range(1, 4096)]
Top = Annotated[int, Range(1, 1_000_000)]  # candidates at a position
Tries = Annotated[int, Range(1, 1000)]  # sweeps or restarts


@dataclass(frozen=True)
class ModelOptions:
    """The settings of a Hugging Face model."""

    title: ClassVar = "how a Hugging Face model is prompted and loaded"
    owner: ClassVar = "Hugging Face models"

    template: Literal["auto", "chat", "plain", "text"] = "auto"
    """Format of the prompt: the model's chat template, plain turns or running text; auto uses the chat
    template if there is one, else plain turns."""
    system: str = ""
    """The system prompt."""
    prefix: str = ""
    """Text before every input, in the user's turn."""
    suffix: str = ""
    """Text after every input, in the user's turn."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of the weights; auto: bfloat16 on a GPU that supports it, else float32."""
    max_reply: ReplyTokens = 40
    """Tokens of a reply, at most."""


class Mark(Enum):
    """FREE and BUDGET fields may differ between two commands that make the same run."""

    FREE = "changes no finding"
    BUDGET = "a limit of one command; resuming a run drops it"
    CONTENT = "a file that is compared by content"
    TRAINING = "used in training only"


@dataclass(frozen=True)
class Choice:
    """The type of a field that holds the config of a search or a method."""

    what: str
    find: Callable[[str], type[Any]]
    """Returns the config class of a name."""
    owners: Callable[[str], list[str]]
    """Returns the names of those whose config has a field."""

    def read(self, value: Any, where: str) -> Any:
        """A config from a name, a mapping with a name in it, or a config."""
        if is_dataclass(value):
            return build_spec(type(value), vars(value), where)
        values = {"name": value} if isinstance(value, str) else value
        if not isinstance(values, Mapping) or not isinstance(name := values.get("name"), str):
            raise InputError(f"{where} should be a name, or a mapping with a name, not {shown(value)}")
        kind, own = self.find(name), {key: each for key, each in values.items() if key != "name"}
        for key in own:
            if key not in flag_names(kind) and (others := self.owners(str(key))):
                owners = f"{key} belongs to --{self.what} {', '.join(others)}"
                raise InputError(f"{where}: {owners}, and this is {name}; leave it out")
        return build_spec(kind, own, where)


Spec = TypeVar("Spec")


def build_spec(kind: type[Spec], values: Mapping[str, Any], source: str) -> Spec:
    """A spec from plain values. Errors name their `source`, or a flag if it is empty."""
    return kind(**check_values(kind, values, source))


def check_values(kind: Any, values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """The values by field name, each converted to the type of its field."""
    hints, names = type_hints(kind), [field.name for field in fields(kind)]
    checked: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).replace("-", "_")
        if name not in names:
            raise InputError(f"{source}: {unknown('key', str(key), names)}")
        checked[name] = coerce(value, hints[name], _where(name, source))
    return checked


def _where(setting: str, source: str) -> str:
    flag = setting.replace("_", "-")
    return f"{source}: {flag}" if source else f"--{flag}"


def with_settings(spec: Spec, values: Mapping[str, Any], source: str = "") -> Spec:
    """The spec with other settings. Those of its search, method and parts are not nested; unknown
    ones are ignored."""
    kind: Any = type(spec)
    changed: dict[str, Any] = {}
    for name, hint in type_hints(kind).items():
        part = getattr(spec, name)
        if name in values and (choice := choice_of(hint)):
            named = choice.read(values[name], _where(name, source))
            part = part if type(named) is type(part) and isinstance(values[name], str) else named
        if is_dataclass(part):
            own = {key: values[key] for key in flag_names(type(part), kind) if key in values}
            changed[name] = replace(part, **check_values(type(part), own, source))  # type: ignore[type-var]
        elif name in values:
            changed[name] = values[name]
    return build_spec(type(spec), vars(spec) | changed, source)


def flat_spec(kind: type[Spec], values: Mapping[str, Any], source: str = "") -> Spec:
    """A spec from settings without nesting."""
    spec = with_settings(kind(), values, source)
    parts = [type(part) for part in (spec, *vars(spec).values()) if is_dataclass(part)]
    known = [name for part in parts for name in flag_names(part)]
    for key in values:
        if key not in known:
            raise InputError(belongs(kind, key) or f"{source}: {unknown('key', key, known)}")
    return spec


def parts_in(kind: Any) -> dict[str, type[Any]]:
    """The fields of a spec that hold a dataclass."""
    hints = type_hints(kind).items()
    return {name: hint for name, hint in hints if isinstance(hint, type) and is_dataclass(hint)}


def choice_of(hint: Any) -> Choice | None:
    return next((one for one in get_args(hint) if isinstance(one, Choice)), None)


def belongs(kind: Any, setting: str) -> str:
    """A sentence that says what a setting belongs to; empty for an unknown setting."""
    choices = filter(None, map(choice_of, type_hints(kind).values()))
    owners = [f"--{one.what} {', '.join(named)}" for one in choices if (named := one.owners(setting))]
    owners += [part.owner for part in parts_in(kind).values() if part.owner and setting in flag_names(part)]
    flag = f"--{setting.replace('_', '-')}"
    return f"{flag} belongs to {owners[-1]}; leave it out, or choose that" if owners else ""


@cache
def type_hints(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields, with `Annotated`."""
    return get_type_hints(kind, include_extras=True)


def marked_with(kind: Any, *marks: Mark) -> list[str]:
    """The fields with one of the marks."""
    hints = type_hints(kind)
    return [field.name for field in fields(kind) if set(marks) & set(get_args(hints[field.name])[1:])]


def spec_values(spec: Any) -> dict[str, Any]:
    """A spec or config as plain values, as a run stores them. A config includes its name."""
    values = {name: spec_values(one) if is_dataclass(one) else one for name, one in vars(spec).items()}
    return _name(spec) | values


def _name(spec: Any) -> dict[str, str]:
    """The name of a search or a method, which is not a field."""
    return {"name": spec.name} if hasattr(spec, "name") and "name" not in vars(spec) else {}


def identity_values(spec: Any) -> dict[str, Any]:
    """The values that are equal if two commands make the same run."""
    free, content = marked_with(type(spec), Mark.FREE, Mark.BUDGET), marked_with(type(spec), Mark.CONTENT)
    kept: dict[str, Any] = _name(spec)
    for name, value in vars(spec).items():
        if name in content:
            kept[name] = bool(value)
        elif name not in free:
            kept[name] = identity_values(value) if is_dataclass(value) else value
    return kept


def chosen(spec: Any) -> list[str]:
    """The settings that differ from their defaults; those of a config read like `search.length`."""
    found: list[str] = []
    for field in fields(spec):
        value = getattr(spec, field.name)
        if is_dataclass(value):
            found += [field.name] if getattr(value, "name", field.default) != field.default else []
            found += [f"{field.name}.{name}" for name in chosen(value)]
        elif value != field.default:
            found.append(field.name)
    return found


def command_of(values: Mapping[str, Any], settings: Iterable[str], verb: str = "audit") -> str:
    """The command line with these settings of a stored spec."""
    words = ["backtalk", verb]
    models = [str(values.get("model")), *others] if (others := values.get("other_models")) else []
    words += [word for name in models for word in ("--model", name)]
    for place in settings:
        key, _, inner = place.partition(".")
        if models and key in {"model", "other_models"}:
            continue
        value = values.get(key, "")
        if isinstance(value, Mapping):
            value = value.get(inner or "name", "")
        flag = (inner or key).replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return shlex.join(words)


def unbudgeted(spec: Spec) -> Spec:
    """The spec without its BUDGET limits."""
    limits = {name: getattr(type(spec), name) for name in marked_with(type(spec), Mark.BUDGET)}
    return replace(spec, **limits)  # type: ignore[type-var]


def refuse_set(spec: Any, names: Collection[str], why: str) -> None:
    """Refuses flags that would have no effect."""
    for field in fields(spec):
        if field.name in names and getattr(spec, field.name) != field.default:
            raise InputError(f"--{field.name.replace('_', '-')} {why}")


def flag_names(kind: type[Any], but: type[Any] | None = None) -> list[str]:
    """The fields that are flags: all but those that the spec `but` also has."""
    taken = {field.name for field in fields(but)} if but else set()
    return [field.name for field in fields(kind) if field.name not in taken]


def coerce(value: Any, hint: Any, where: str) -> Any:
    """The value converted to its field's type, and checked."""
    if NoneType in get_args(hint):  # may be left out
        return None if value in (None, "") else coerce(value, get_args(hint)[0], where)
    if get_origin(hint) is Annotated:
        kind, *checks = get_args(hint)
        if isinstance(checks[0], Choice):
            return checks[0].read(value, where)
        value = coerce(value, kind, where)
        for check in checks:
            if not isinstance(check, Mark):
                check(value, where)
        return value
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, Mapping | hint):
            raise InputError(f"{where} should be a mapping of settings, not {shown(value)}")
        return build_spec(hint, value if isinstance(value, Mapping) else vars(value), where)
    if get_origin(hint) is tuple:
        if not isinstance(value, list | tuple):
            raise InputError(f"{where} should be a list, not {shown(value)}")
        return tuple(coerce(one, get_args(hint)[0], where) for one in value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise InputError(f"{where}: {unknown('value', str(value), filter(None, get_args(hint)))}")
        return value
    if hint is bool:
        if isinstance(value, bool):
            return value
        raise InputError(f"{where} should be true or false, not {shown(value)}")
    if hint is str:
        if value is None or isinstance(value, bool | list | dict):
            raise InputError(f"{where} should be text, not {shown(value)}; put it in quotes")
        text = check_text(str(value), where)
        return value if isinstance(value, Name) else text
    if isinstance(value, bool):
        raise InputError(f"{where} should be a number, not {shown(value)}")
    try:
        percent = hint is float and isinstance(value, str) and value.endswith("%")
        number = float(value[:-1]) / 100 if percent else hint(value)
        if isinstance(value, float) and number != value and value == value:
            raise ValueError  # int() would cut 2.5 down to 2
    except (TypeError, ValueError, OverflowError):
        what = "a whole number" if hint is int else "a number"
        raise InputError(f"{where} should be {what}, not {shown(value)}") from None
    return number
