"""Hits by chance against sums by hand and against every order of the replies, one by one."""

from itertools import permutations
from math import e, factorial

import pytest

from reproduction.egregious.relax import by_chance


def test_by_hand() -> None:
    """Targets a b c, replies a a x: a is said by one other of two rows, b and c by none. Of the six orders
    the four with an a in the first place hit."""
    found = by_chance("abc", "aax")
    assert found.hits == 1
    assert found.expected == 1 / 2
    assert found.p == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("targets", "replies"),
    [
        ("abcdef", "abxxxx"),
        ("abcdef", "bacdef"),
        ("abcdef", "aaabbb"),
        ("aabbcd", "aabbab"),
        ("aaab", "aaaa"),
        ("abc", "xyz"),
        ("abcdefg", "abcccxa"),
        ("a", "a"),
        ("a", "b"),
    ],
)
def test_it_equals_a_look_at_every_order(targets: str, replies: str) -> None:
    found = by_chance(targets, replies)
    n, pairs = len(targets), list(zip(targets, replies, strict=True))
    assert found.hits == sum(target == reply for target, reply in pairs)
    orders = list(permutations(replies))
    as_many = sum(sum(a == b for a, b in zip(targets, order, strict=True)) >= found.hits for order in orders)
    assert found.p == pytest.approx(as_many / len(orders))
    shares = [sum(replies[j] == targets[i] for j in range(n) if j != i) / (n - 1) for i in range(n) if n > 1]
    assert found.expected == pytest.approx(sum(shares))


def test_replies_that_know_their_targets_are_no_chance() -> None:
    found = by_chance(range(500), range(500))
    assert found.hits == 500
    assert found.expected == 0
    assert found.p == 1 / factorial(500) == 0
    one = by_chance(range(500), [0, *([-1] * 499)])
    assert one.p == pytest.approx(1 / 500)


def test_one_fixed_point_of_many_is_the_classical_number() -> None:
    """Distinct replies, one in its place: 1 - 1/e of all orders have at least that."""
    found = by_chance(range(30), [0, *range(2, 30), 1])
    assert found.hits == 1
    assert found.expected == pytest.approx(1.0)
    assert found.p == pytest.approx(1 - 1 / e)


def test_a_reply_that_is_given_to_everything_hits_its_own_target_by_chance() -> None:
    """However many inputs get it, one target alone is that reply: there is nothing to learn from its hit."""
    found = by_chance(range(500), [7] * 500)
    assert found == (1, 1.0, 1.0)
