"""The rate page: blind pairs of a ratings folder, one rater's next pair, and an answer that is on the disk
before the next is shown. Which model is which is not known here; `backtalk rate FOLDER --result` tells.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.rating.answers import CHOICES, Answer, append_answers, check_rater, now, standing
from backtalk.rating.asking import own_answers
from backtalk.rating.folder import Ratings, claimed, read_ratings
from backtalk.terminal import printable
from backtalk.web.wire import Problem

_ONE_AT_A_TIME = threading.Lock()
"""Two tabs wait for each other; another process that rates is an error, as it always was."""


def next_pair(folder: Path, rater: str) -> dict[str, Any]:
    """The first pair that the rater has neither answered nor skipped, and how far it is."""
    return _next(read_ratings(folder), _rater(rater))


def take_answer(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Keeps {"rater", "pair", "choice"} and says what `next_pair` says; undo takes the rater's last back."""
    rater, pair, choice = _rater(asked.get("rater")), asked.get("pair"), asked.get("choice")
    if not isinstance(choice, str) or choice not in CHOICES:
        raise Problem(400, f"the choice is one of {', '.join(CHOICES)}")
    with _ONE_AT_A_TIME, claimed(folder):
        ratings = read_ratings(folder)
        done = [of for name, of in standing(own_answers(ratings)) if name == rater]
        if choice == "undo":
            if not done:
                raise Problem(409, "there is nothing to take back")
            pair = done[-1]
        elif not isinstance(pair, str) or pair not in {one.id for one in ratings.pairs}:
            raise Problem(400, "that is no pair of these ratings")
        elif pair in done:
            raise Problem(409, "that pair was judged already, perhaps in another tab")
        append_answers(ratings.answers, [Answer(pair, rater, choice, now())])
        return _next(ratings, rater)


def _next(ratings: Ratings, rater: str) -> dict[str, Any]:
    done = [of for name, of in standing(own_answers(ratings)) if name == rater]
    left = [pair for pair in ratings.pairs if pair.id not in set(done)]
    shown = {name: printable(text) for name, text in left[0].as_dict().items()} if left else None
    return {"pair": shown, "done": len(done), "total": len(ratings.pairs)}


def _rater(name: Any) -> str:
    try:
        return check_rater(name if isinstance(name, str) else "", "the page")
    except InputError as error:
        raise Problem(400, str(error)) from None
