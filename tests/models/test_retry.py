"""Retries: how often, how many at once, and when the run ends."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest

from backtalk.errors import InputError
from backtalk.models.service.retry import Kind, Outcome, RequestRunner, RetryPolicy

HASTE = RetryPolicy(pause_s=0.001, longest_s=0.01)


class Purse:
    """A meter with so many requests in it."""

    def __init__(self, left: int = 10_000) -> None:
        self.left = left
        self.thread = threading.get_ident()

    def take(self, most: int = 1) -> int:
        assert threading.get_ident() == self.thread, "a meter is used from one thread"
        may = min(most, self.left)
        self.left -= may
        return may

    def give_back(self) -> None:
        assert threading.get_ident() == self.thread
        self.left += 1


class Script:
    """Sends by a plan: for each place its outcomes in turn, the last again and again."""

    def __init__(self, plan: Callable[[int], list[Outcome]]) -> None:
        self.plan = plan
        self.sent: Counter[int] = Counter()
        self.at: list[float] = []
        self._lock = threading.Lock()

    def __call__(self, place: int) -> Outcome:
        with self._lock:
            self.sent[place] += 1
            self.at.append(time.monotonic())
            outcomes = self.plan(place)
            return outcomes[min(self.sent[place], len(outcomes)) - 1]


def reply(place: int) -> Outcome:
    return Outcome(Kind.REPLY, f"r{place}")


FAILED = Outcome(Kind.FAILED, "broke")
SLOW = Outcome(Kind.FAILED, "slow", timed_out=True)
BUSY = Outcome(Kind.BUSY, "busy")
UNREACHED = Outcome(Kind.UNREACHED, "no way")
UNUSABLE = Outcome(Kind.UNUSABLE, "nonsense")


def run_all(
    runner: RequestRunner, script: Script, count: int, purse: Purse | None = None
) -> dict[int, Outcome]:
    carried = list(runner.run(script, count, purse or Purse()))
    assert len(carried) == len(dict(carried)), "a place was decided twice"
    return dict(carried)


@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_every_place_is_decided_once(concurrency: int) -> None:
    script = Script(lambda place: [reply(place)])
    assert run_all(RequestRunner("s", concurrency, HASTE), script, 20) == {i: reply(i) for i in range(20)}
    assert set(script.sent.values()) == {1}
    assert run_all(RequestRunner("s", concurrency, HASTE), script, 0) == {}


@pytest.mark.parametrize(
    ("passing", "sends"), [(FAILED, 3), (BUSY, 3), (UNREACHED, 3), (SLOW, 2)], ids=lambda one: str(one)[:20]
)
def test_what_passes_ends_well(passing: Outcome, sends: int) -> None:
    script = Script(lambda place: [passing] * (sends - 1) + [reply(place)] if place == 4 else [reply(place)])
    purse = Purse(100)
    assert run_all(RequestRunner("s", 2, HASTE), script, 8, purse) == {i: reply(i) for i in range(8)}
    assert script.sent[4] == sends
    unsent = sends - 1 if passing is UNREACHED else 0
    assert purse.left == 100 - sum(script.sent.values()) + unsent


@pytest.mark.parametrize(("outcome", "sends"), [(FAILED, HASTE.tries), (SLOW, 2), (UNUSABLE, 1)])
def test_a_question_that_never_ends_well_is_given_up_alone(outcome: Outcome, sends: int) -> None:
    script = Script(lambda place: [outcome] if place == 0 else [reply(place)])
    assert run_all(RequestRunner("s", 2, HASTE), script, 5)[0] == outcome
    assert script.sent == {0: sends, 1: 1, 2: 1, 3: 1, 4: 1}


@pytest.mark.parametrize("outcome", [BUSY, UNREACHED])
def test_a_service_in_trouble_is_gone_after_some_tries_even_for_one_question(outcome: Outcome) -> None:
    script = Script(lambda place: [outcome])
    with pytest.raises(InputError, match="here does not answer"):
        run_all(RequestRunner("here", 4, HASTE), script, 1)
    assert script.sent == {0: HASTE.tries}


def test_questions_given_up_in_a_row_end_it_also_over_batches() -> None:
    runner, script = RequestRunner("here", 1, HASTE), Script(lambda place: [FAILED])
    for _ in range(HASTE.given_up - 1):
        assert run_all(runner, script, 1) == {0: FAILED}
    with pytest.raises(InputError, match=r"here .*\(broke\)"):
        run_all(runner, script, 1)


def test_a_reply_between_them_starts_the_count_anew() -> None:
    runner = RequestRunner("here", 1, HASTE)
    for _ in range(2 * HASTE.given_up):
        assert run_all(runner, Script(lambda place: [FAILED]), 1) == {0: FAILED}
        assert run_all(runner, Script(lambda place: [reply(place)]), 1) == {0: reply(0)}


def test_nonsense_in_a_row_ends_it() -> None:
    script = Script(lambda place: [UNUSABLE])
    with pytest.raises(InputError, match="here gave 50 answers"):
        run_all(RequestRunner("here", 1, HASTE), script, 200)
    assert sum(script.sent.values()) == 50


def test_a_refusal_ends_it_at_once() -> None:
    script = Script(lambda place: [Outcome(Kind.REFUSED, "go away")])
    with pytest.raises(InputError, match=r"^go away$"):
        run_all(RequestRunner("here", 1, HASTE), script, 10)
    assert sum(script.sent.values()) == 1


def test_when_the_meter_ends_what_is_on_its_way_is_waited_for() -> None:
    script = Script(lambda place: [reply(place)])
    assert run_all(RequestRunner("s", 4, HASTE), script, 20, Purse(7)) == {i: reply(i) for i in range(7)}


@pytest.mark.parametrize("concurrency", [1, 2, 5])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 4])
def test_where_no_request_is_left_for_another_try_it_ends(concurrency: int, most: int) -> None:
    script = Script(lambda place: [FAILED])
    assert run_all(RequestRunner("s", concurrency, HASTE), script, 4, Purse(most)) == {}
    assert sum(script.sent.values()) == most


def test_the_last_request_is_not_lost_where_nothing_could_be_sent() -> None:
    script = Script(lambda place: [UNREACHED, UNREACHED, reply(place)])
    purse = Purse(1)
    assert len(run_all(RequestRunner("s", 2, HASTE), script, 2, purse)) == 1
    assert purse.left == 0


def test_pauses_double_and_hold_all_back() -> None:
    runner = RequestRunner("s", 1, RetryPolicy(pause_s=0.02))
    chosen: list[float] = []

    def plan(place: int) -> list[Outcome]:
        chosen.append(runner._paused_until - runner._paused_at)  # before this request
        return [UNREACHED] * 4 + [reply(place)]

    script = Script(plan)
    run_all(runner, script, 1)
    gaps = [later - earlier for earlier, later in zip(script.at, script.at[1:], strict=False)]
    for gap, own, pause in zip(gaps, chosen[1:], (0.02, 0.04, 0.08, 0.16), strict=True):
        assert pause - 1e-6 <= own <= 1.25 * pause + 1e-6
        assert gap >= own - 1e-6  # how much longer it takes is the machine's


def test_a_service_that_asks_for_time_gets_it_from_all() -> None:
    busy = Outcome(Kind.BUSY, "", wait_s=0.2)
    script = Script(lambda place: [busy, reply(place)] if place == 0 else [reply(place)])
    run_all(RequestRunner("s", 1, RetryPolicy(pause_s=0.001)), script, 3)
    assert script.at[1] - script.at[0] >= 0.2


def test_long_pauses_are_told_of() -> None:
    told: list[str] = []
    runner = RequestRunner("here", 1, RetryPolicy(pause_s=0.001, longest_s=0.003))
    runner.on_pause = told.append
    run_all(runner, Script(lambda place: [UNREACHED, UNREACHED, reply(place)]), 1)
    assert told == []  # nobody would notice
    runner = RequestRunner("here", 1, RetryPolicy(pause_s=60))
    runner.on_pause = told.append
    runner._pause(UNREACHED)
    assert re.match(r"here .*\(no way\).* \d+ s$", told[0])


def test_a_busy_service_gets_fewer_at_once_until_it_answers_again() -> None:
    runner = RequestRunner("s", 8, HASTE)
    run_all(runner, Script(lambda place: [BUSY, reply(place)]), 1)
    assert runner._width == 4
    run_all(runner, Script(lambda place: [reply(place)]), 100)
    assert runner._width == 8


def test_a_mistake_of_ours_is_not_swallowed() -> None:
    def broken(place: int) -> Outcome:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(RequestRunner("s", 2, HASTE).run(broken, 3, Purse()))
