"""The text of the study: Reddit openings and RealToxicityPrompts from a folder, or what ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backtalk.data.targets import load_mal
from backtalk.data.toxicity import find_file
from backtalk.errors import InputError
from reproduction.egregious.data import EMBEDDED
from reproduction.records import write_once

LAYOUT = "The data folder holds `reddit/` (train, dev and test openings) and `rtp/` (RealToxicityPrompts)."


@dataclass(frozen=True)
class Texts:
    """What the flags of an audit name."""

    openings: str
    weak: str
    prompts: str
    kind: str
    """embedded or files; never a path."""

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(Path(name) for name in (self.openings, self.weak, self.prompts) if name)


def open_texts(name: str, folder: Path) -> Texts:
    """Of a folder of data; embedded: the shipped openings, and the shipped rude sentences as the weak set and
    as prompts."""
    if name == EMBEDDED:
        path = folder / "data" / "rude.txt"
        write_once(path, (f"{target.text}\n" for target in load_mal()))
        return Texts("", str(path), str(path), "embedded")
    root = Path(name)
    if not root.is_dir():
        raise InputError(f"--data {name} is no folder; name one with reddit/ and rtp/, or `embedded`")
    weak = find_file(root, "quark_val_5k.jsonl")
    prompts = find_file(root, "decodingtrust_toxic_1.2k.jsonl")
    return Texts(str(root / "reddit"), str(weak), str(prompts), "files")
