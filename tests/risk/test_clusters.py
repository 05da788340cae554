"""Conversations as draws: coverage where their turns resemble each other."""

from __future__ import annotations

import numpy as np
import pytest

from backtalk.risk.bounds import Array, lower_bound, normal_interval, upper_bound
from backtalk.risk.clusters import cluster_interval, cluster_sums

SEEDS, LEAST = 200, 190


def conversations(seed: int) -> tuple[Array, list[int]]:
    """Long conversations are ruder, and each has a temper: 200 of them, 1.2 to 12 turns on average."""
    rng = np.random.default_rng(seed)
    names, z = [], []
    for name in range(200):
        temper = rng.random() < 0.1
        turns = int(rng.integers(6, 13)) if temper else int(rng.integers(1, 4))
        names += [name] * turns
        z += list((rng.random(turns) < (0.4 if temper else 0.01)).astype(float))
    return np.array(z), names


def test_turns_of_a_conversation_are_one_draw() -> None:
    truth = (0.1 * 9 * 0.4 + 0.9 * 2 * 0.01) / (0.1 * 9 + 0.9 * 2)
    held = {"clusters": 0, "turns": 0, "lower": 0, "upper": 0}
    for seed in range(SEEDS):
        z, names = conversations(seed)
        clusters = cluster_sums(z, names)
        assert clusters.estimate() == pytest.approx(z.mean())
        for name, (low, high) in (("clusters", cluster_interval(clusters)), ("turns", normal_interval(z))):
            held[name] += low <= truth <= high
        held["lower"] += lower_bound(clusters.sums, sizes=clusters.sizes) <= truth
        held["upper"] += upper_bound(clusters.sums, 1.0, sizes=clusters.sizes) >= truth
    assert min(held["lower"], held["upper"]) >= LEAST
    assert held["clusters"] >= 180
    assert held["turns"] < 160  # as separate draws the turns promise too much


def test_conversations_of_one_turn_are_plain_draws() -> None:
    z = np.random.default_rng(7).random(300)
    clusters = cluster_sums(z, range(300))
    assert lower_bound(clusters.sums, sizes=clusters.sizes) == pytest.approx(lower_bound(z))
    assert upper_bound(clusters.sums, 1.0, sizes=clusters.sizes) == pytest.approx(upper_bound(z, 1.0))
    assert cluster_interval(clusters) == pytest.approx(normal_interval(z))


def test_clusters_need_a_name_for_each_turn() -> None:
    with pytest.raises(ValueError, match="conversation"):
        cluster_sums(np.ones(3), ["a", "b"])
    found = cluster_sums(np.array([1.0, 2.0, 4.0]), ["a", "b", "a"])
    assert (found.sums.tolist(), found.sizes.tolist()) == ([5.0, 2.0], [2.0, 1.0])
