"""What the parts of the study of Liu et al. 2019 found, by corpus, decoder, list and length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reproduction.reverse.sizes import Size

Records = Mapping[str, Mapping[str, Any]]
REAL_INPUT = "real-input"
"""In the place of a decoder: the input that a Real target really answered."""


def decoders(size: Size) -> list[str]:
    """In the paper's order; the pre-trained generator's beams and all samples are our own rows."""
    wide = [f"beam-{width}" for width in size.beams] + [f"sample-{size.beams[-1]}"]
    return ["pretrained-greedy", "rl-greedy", *(f"{w}-{how}" for how in wide for w in ("pretrained", "rl"))]


def reached(records: Records, corpus: str, decoder: str, name: str, group: str) -> Mapping[str, Any]:
    """Similarities on a list and length with their mean; empty where it was not run."""
    part = f"inputs-{corpus}" if decoder == REAL_INPUT else f"decode-{corpus}-{decoder}"
    found: Mapping[str, Any] = records.get(part, {}).get("result", {}).get(name, {}).get(group, {})
    return found
