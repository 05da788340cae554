"""Reading the YAML file of --config: `key: value` lines, and a mapping for a search or a method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backtalk.errors import InputError, shown

LARGEST_SPEC = 1 << 20
"""Bytes of a spec file: the longest that ships has a thousand."""
DEEPEST = 3
"""Lists within lists of a spec file, which has use for none."""


def read_yaml(path: Path) -> dict[str, Any]:
    import yaml

    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_SPEC + 1)
        if len(data) > LARGEST_SPEC:
            raise InputError(f"{path} is too large to be a spec; it should hold `key: value` lines")
        text = data.decode("utf-8")
        _refuse_tangles(text, path)
        value = yaml.safe_load(text)
        repr(value)  # a ValueError where a number has more digits than Python writes
    except FileNotFoundError:
        raise InputError(f"no spec file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} can't be read as a spec: {error}") from None
    except (yaml.YAMLError, ValueError) as error:  # a ValueError is a date that does not exist
        raise InputError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path} should hold `key: value` lines, one a flag")
    return value


def _refuse_tangles(text: str, path: Path) -> None:
    """What is valid YAML but no list of flags: deep nesting and aliases, whose value may be many times the
    file, and a key that is given twice. Events are read one by one, so nothing is built of them yet."""
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or isinstance(event, yaml.AliasEvent):
            raise InputError(f"{path}: a spec has no lists in lists and no aliases; write `key: value` lines")
    nodes = [yaml.compose(text, Loader=yaml.SafeLoader)]
    while nodes:
        node, seen = nodes.pop(), set()
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            name = str(key.value).replace("-", "_")
            if name in seen:
                where = f"{path}, line {key.start_mark.line + 1}"
                raise InputError(f"{where}: the key {shown(key.value)} is given twice; leave one out")
            seen.add(name)
            nodes.append(value)
