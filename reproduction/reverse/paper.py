"""The numbers of Liu et al., "Say What I Want: Towards the Dark Side of Neural Dialogue Models" (2019)."""

from __future__ import annotations

GROUPS = ("1-3", "4-6", "7-10")
"""Words of a target."""
LISTS = ("generated", "real")
"""The model's own replies to unseen utterances, and what people said."""
DECODERS = ("pretrained-greedy", "rl-greedy", "rl-beam-50", "rl-beam-200")

TABLE_1 = {
    "real-input": (0.439, 0.518, 0.566),
    "pretrained-greedy": (0.446, 0.529, 0.559),
    "rl-greedy": (0.486, 0.560, 0.588),
    "rl-beam-50": (0.599, 0.678, 0.709),
    "rl-beam-200": (0.621, 0.694, 0.726),
}
"""Mean similarity of reply and target on the Real list, by length."""
GAIN = (41.5, 34.0, 28.3)
"""Percent by which beam-200 is above the real inputs."""
