"""Rows are kept and chosen by their words, whatever their spelling."""

from __future__ import annotations

from backtalk.data.contrast import LabelledText
from backtalk.training.scorer_data import clearly_aimed, with_rude_word


def test_a_mild_word_that_is_said_to_nobody_is_no_abuse_by_itself() -> None:
    kept = [
        LabelledText("You're a stupid man", True),
        LabelledText("that is a cruel thing to say", True),
        LabelledText("damn this law", True),  # swearing is minded whoever is meant
        LabelledText("what a stupid law", False),
    ]
    dropped = [LabelledText("what a STUPID, stupid law", True)]
    assert clearly_aimed(kept + dropped) == kept


def test_rude_words_are_found() -> None:
    rude, calm = LabelledText("My St00pid, stupid car", False), LabelledText("my new car", False)
    assert with_rude_word([calm, rude]) == [rude]
