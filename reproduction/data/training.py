"""Training as in the papers of He & Glass: what their networks do otherwise than ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backtalk.specs.train import TrainSpec


@dataclass(frozen=True)
class PaperTrainSpec(TrainSpec):
    """The flags of `python -m reproduction train-paper`."""

    decoder_start: Literal["encoder", "zero"] = "encoder"
    """Where the decoder starts: from the encoder's last state, or from zeros."""
    input_end: Literal["none", "eos"] = "none"
    """What is read after the input's last word: nothing, or the end-of-turn token."""
    pads: Literal["masked", "word"] = "masked"
    """Padding leaves no trace (masked) or is read like a word."""

    def network(self) -> dict[str, bool]:
        return {
            "pad_as_word": self.pads == "word",
            "zero_start": self.decoder_start == "zero",
            "ended_input": self.input_end == "eos",
        }
