"""The settings of a study, of an enumeration, and of a training as in the papers of He & Glass."""

from dataclasses import dataclass
from typing import Annotated, Literal

from backtalk.specs import Count, Duration, Mark, Range, Seed, Words
from backtalk.specs.train import TrainSpec

EMBEDDED = "embedded"
"""The value of --data for what ships with backtalk."""


@dataclass(frozen=True)
class StudySpec:
    """The flags of `python -m reproduction STUDY`."""

    data: str = ""
    """The folder of data, or `embedded` for what ships with backtalk."""
    out: str = "study"
    """The study's folder; the same command again resumes."""
    parts: str = ""
    """Only these parts and what they need: names or globs by commas; `page` builds the page alone."""
    size: Literal["paper", "mini"] = "paper"
    """The paper's sizes, or a miniature that shows the machinery."""
    restarts: Annotated[int, Range(0, 1000)] = 0
    """Searches from different starts for each target; 0 takes the size's own number."""
    limit: Count = 0
    """Targets of each list at most; 0 takes the size's own numbers."""
    model: str = ""
    """With ast, lora and transformers: the Hugging Face model, hf/NAME-OR-FOLDER; smollm2 if empty."""
    records: str = ""
    """The .json beside an earlier page: builds the page from it and runs nothing."""
    page: str = ""
    """The Markdown file to write; STUDY.md in the study's folder if empty."""
    max_time: Duration = ""
    """Begin no part after this much time: 90s, 10m, 2h."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""


@dataclass(frozen=True)
class EnumerateSpec:
    """The flags of `python -m reproduction enumerate`."""

    model: str = ""
    """The folder of a model with a small vocabulary, such as one of characters."""
    length: Words = 6
    """Symbols of an input: all inputs of exactly this many are tried."""
    symbols: str = ""
    """The symbols that may stand in an input; all that the model knows if empty."""
    lists: str = "mal"
    """Targets to look for, by commas: NAME=FILE (one a line), or mal for the 500 rude ones that ship."""
    text: str = ""
    """Running text: adds the lists normal (its words), reverse and random; --outside is normal then."""
    outside: str = ""
    """A list or file of words: counts the inputs whose answer is none of them."""
    sample: Annotated[int, Range(0, 10**12)] = 0
    """Draw this many inputs at random instead of trying all; 0 tries all."""
    examples: Annotated[int, Range(0, 100_000)] = 20
    """Hits shown for each list, and answers shown from outside the words."""
    recheck: bool = True
    """Decode the input of every hit again in float32."""
    compare: Annotated[int, Range(0, 10**7)] = 0
    """Random inputs on which fast and float32 products are compared; 0: a million on a GPU, else 10,000."""
    max_time: Annotated[Duration, Mark.FREE] = "1h"
    """Refuse a space that would take longer: 90s, 10m, 2h."""
    seed: Seed = 1
    """Fixes what is drawn at random."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""


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
