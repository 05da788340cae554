"""The settings of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from backtalk.specs import Count, Duration, Range


@dataclass(frozen=True)
class StudySpec:
    """The flags of `python -m reproduction STUDY`."""

    data: str = ""
    """The folder of data, or `embedded` for what ships with backtalk."""
    out: str = "study"
    """The study's folder; the same command again goes on where it stopped."""
    parts: str = ""
    """Only these parts: names or globs by commas. What they need is taken as it is, or run where there is
    none; `page` builds the page alone."""
    size: Literal["paper", "small", "mini"] = "paper"
    """The paper's sizes, those of a small machine, or a miniature that shows the machinery."""
    restarts: Annotated[int, Range(0, 1000)] = 0
    """Searches from different starts for each target; 0 takes the size's own number."""
    limit: Count = 0
    """Targets of each list at most; 0 takes the size's own numbers."""
    model: str = ""
    """With ast, lora and transformers: the Hugging Face model, hf/NAME-OR-FOLDER; smollm2 if empty."""
    baseline_from: str = ""
    """With negative: the folder of another study, whose models of the same settings are copied."""
    records: str = ""
    """The .json beside an earlier page of the study: parts that have no result yet take theirs from it. Where
    a part that is run needs the model or the run behind such a result, that is made again."""
    page: str = ""
    """The Markdown file to write; STUDY.md in the study's folder if empty, no page for `none`."""
    jobs: Annotated[int, Range(1, 64)] = 1
    """Parts that run beside each other, each in a process of its own with its share of a GPU's memory."""
    max_time: Duration = ""
    """Begin no part after this much time: 90s, 10m, 2h."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
