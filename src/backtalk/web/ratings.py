"""The rate page: a rater's next blind pair, and an answer that is on disk before the next one is shown.

The key is not read here; `backtalk rate FOLDER --result` says which model is which.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.rating.answers import CHOICES, answered_by, check_rater, give_answer
from backtalk.rating.folder import Ratings, claimed, read_ratings
from backtalk.terminal import printable
from backtalk.web.http import HttpError

_LOCK = threading.Lock()  # two tabs wait for each other; another process that rates is an error


def next_pair(folder: Path, rater: str) -> dict[str, Any]:
    """The first pair that the rater has neither answered nor skipped, and the progress."""
    return _next(read_ratings(folder), _check_rater(rater))


def take_answer(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Stores {"rater", "pair", "choice"}, where undo takes the rater's last answer back; then `next_pair`."""
    rater, pair, choice = _check_rater(asked.get("rater")), asked.get("pair"), asked.get("choice")
    if not isinstance(choice, str) or choice not in CHOICES:
        raise HttpError(400, f"the choice is one of {', '.join(CHOICES)}")
    with _LOCK, claimed(folder):
        ratings = read_ratings(folder)
        done = answered_by(rater, ratings)
        if choice == "undo":
            if not done:
                raise HttpError(409, "there is no answer to take back")
            pair = done[-1]
        elif not isinstance(pair, str) or pair not in {one.id for one in ratings.pairs}:
            raise HttpError(400, "these ratings have no such pair")
        elif pair in done:
            raise HttpError(409, "that pair was judged already, perhaps in another tab")
        give_answer(ratings, pair, rater, choice)
        return _next(ratings, rater)


def _next(ratings: Ratings, rater: str) -> dict[str, Any]:
    done = answered_by(rater, ratings)
    left = [pair for pair in ratings.pairs if pair.id not in set(done)]
    shown = {name: printable(text) for name, text in left[0].as_dict().items()} if left else None
    return {"pair": shown, "done": len(done), "total": len(ratings.pairs)}


def _check_rater(name: Any) -> str:
    try:
        return check_rater(name if isinstance(name, str) else "", "the page")
    except InputError as error:
        raise HttpError(400, str(error)) from None
