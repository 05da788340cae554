"""A network read for what it makes of given tokens: log-probabilities, and whether each is the argmax.

Only the places that are asked for reach the output layer. Where nothing but a linear layer makes the logits,
which the first call finds out, the network is left to make those of one place, and the rest is done with the
log-sum-exp folded in (models/softmax.py): no logits are stored. Where an architecture does more to them
(caps, biases), its own logits are taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.lstm.softmax import target_scores
from backtalk.models.transformer.kv_slots import Layers, layers_of
from backtalk.models.transformer.scoring import before_output

CLOSE, CLOSE_IN_HALF = 1e-5, 1e-2
"""How near the output layer's product has to be to the network's own logits, also in 16 bits."""


@dataclass
class Tally:
    """Tokens that were run through the network, of all rows."""

    tokens: int = 0


class Reader:
    """One network, and what is known of its output layer."""

    def __init__(self, network: Any, tally: Tally) -> None:
        self.network, self.tally = network, tally
        self.is_linear: bool | None = None
        """Whether the logits are the output layer's product and nothing else; None before the first call."""

    @property
    def device(self) -> torch.device:
        device: torch.device = self.network.device
        return device

    def scores(self, inputs: dict[str, Any], places: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
        """(tokens,) each: log P, at least in float32, and "is the argmax" of `goals` (tokens,), predicted at
        `places` (tokens,) of the flattened (rows, length) that the decoder reads."""
        hidden, logits, _ = self._run(inputs, places, whole=not self.is_linear)
        if self.is_linear is None:
            self.is_linear = self._makes(hidden, logits)
        if self.is_linear and hidden is not None:
            return target_scores(hidden, self.network.get_output_embeddings(), goals)
        chosen = logits.gather(1, goals[:, None]).squeeze(1)
        dtype = wide(logits.dtype)
        return chosen.to(dtype) - logits.to(dtype).logsumexp(1), chosen >= logits.amax(1)

    def logits(self, inputs: dict[str, Any], places: Tensor) -> tuple[Tensor, Any]:
        """(tokens, vocabulary) at `places`, and what the network keeps of what it read. Gradients flow."""
        _, logits, past = self._run(inputs, places, whole=True)
        return logits, past

    def past(self, ids: Tensor) -> Layers:
        """Keys and values of (rows, length) ids."""
        first = torch.zeros(1, dtype=torch.long, device=ids.device)
        _, _, past = self._run({"input_ids": ids, "use_cache": True}, first, whole=False)
        return layers_of(past)

    def _run(self, inputs: dict[str, Any], places: Tensor, whole: bool) -> tuple[Tensor | None, Tensor, Any]:
        """Hidden states (tokens, H) at `places`, None where the network hides them; the logits of all these
        or, unless `whole`, of the first alone; keys and values."""
        hidden: Tensor | None = None

        def pick(given: Tensor) -> Tensor:
            nonlocal hidden
            hidden = given.flatten(0, 1).index_select(0, places)
            return (hidden if whole else hidden[:1])[None]  # (1, tokens, hidden)

        with before_output(self.network, pick):
            found = self.network(**{"use_cache": False, **inputs})
        read = inputs.get("input_ids", inputs.get("inputs_embeds"))
        written = inputs.get("decoder_input_ids")
        assert read is not None
        self.tally.tokens += read.shape[0] * (read.shape[1] + (0 if written is None else written.shape[1]))
        logits = found.logits.flatten(0, 1).index_select(0, places) if hidden is None else found.logits[0]
        return hidden, logits, found.past_key_values if inputs.get("use_cache") else None

    def _makes(self, hidden: Tensor | None, logits: Tensor) -> bool:
        layer = self.network.get_output_embeddings()
        if hidden is None or type(layer) is not nn.Linear:
            return False
        product = F.linear(hidden[None], layer.weight, layer.bias)[0]
        near = CLOSE if logits.dtype in (torch.float32, torch.float64) else CLOSE_IN_HALF
        return product.shape == logits.shape and torch.allclose(product, logits, atol=near, rtol=near)
