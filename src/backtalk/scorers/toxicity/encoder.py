"""The encoder as a scorer: all-MiniLM-L6-v2 from an installed package, with low-rank changes of its weights
(LoRA, Hu et al. 2021) and two heads, for a text alone and for a reply after what was said before it.

What was said before is the first segment. A long reply is read in overlapping windows, and the worst counts.
Only our changes ship; they are added to the package's weights, which are checked by their sha256.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.models.transformer.library import file_hash
from backtalk.scorers.similarity import JUDGE, load_minilm
from backtalk.scorers.toxicity.network import batches_by_length, in_chunks, window_starts
from backtalk.store.typed import read_record
from backtalk.types import Dialogue

SLOTS = {"cpu": 1024, "cuda": 1 << 17}  # tokens of a batch, padding included
CHUNK = 1 << 14  # texts that are sorted by length together
CLS, SEP = 101, 102
Window = tuple[list[int], list[int]]
"""The token ids of the context and of the reply."""
ADAPTED = ("query", "key", "value", "dense")  # the linear layers of a block


@dataclass(frozen=True)
class EncoderConfig:
    rank: int = 16
    scale: float = 2.0  # of the low-rank changes
    context: int = 48  # tokens of what was said before: its last ones
    window: int = 96  # tokens of a reply that are read at once
    stride: int = 64  # between the windows of a longer one


def base_parts() -> tuple[Any, Any, str]:
    """The package's network and tokenizer, and the sha256 of its weights."""
    network, tokenizer, weights = load_minilm("what an encoder scorer needs")
    return network.float(), tokenizer, file_hash(weights)


class LowRank(nn.Module):
    """A linear layer, and a low-rank change of it that is learnt."""

    def __init__(self, layer: nn.Linear, config: EncoderConfig) -> None:
        super().__init__()
        self.layer, self.scale = layer, config.scale
        self.up = nn.Parameter(torch.zeros(layer.out_features, config.rank))
        self.down = nn.Parameter(torch.randn(config.rank, layer.in_features) / layer.in_features**0.5)

    def forward(self, x: Tensor) -> Tensor:
        own: Tensor = self.layer(x)
        return own + self.scale * F.linear(F.linear(x, self.down), self.up)


def adapted(network: nn.Module) -> dict[str, nn.Linear]:
    """The linear layers that are changed, by name."""
    return {
        name: part
        for name, part in network.named_modules()
        if isinstance(part, nn.Linear) and name.rsplit(".", 1)[-1] in ADAPTED
    }


class ToxicityEncoder(nn.Module):
    """Tokens to two logits a row: as a text alone, and as a reply after what was said."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.heads = nn.Linear(2 * network.config.hidden_size, 2)

    def forward(self, ids: Tensor, segments: Tensor, keep: Tensor, judged: Tensor) -> Tensor:
        """(rows, 2) of (rows, width) tokens. `keep` is False for padding, `judged` True for what is rated."""
        out = self.network(input_ids=ids, token_type_ids=segments, attention_mask=keep).last_hidden_state
        own = judged.unsqueeze(2).to(out.dtype)
        mean = (out * own).sum(1) / own.sum(1)
        logits: Tensor = self.heads(torch.cat([mean, out[:, 0]], 1))
        return logits

    def merge(self, tensors: dict[str, Tensor], config: EncoderConfig) -> None:
        """Adds low-rank changes to the weights and takes the heads."""
        layers = adapted(self.network)
        wanted = {f"{name}.{part}" for name in layers for part in ("up", "down")} | {"weight", "bias"}
        if set(tensors) != wanted:
            raise ValueError("its tensors are not those of an encoder")
        for name, layer in layers.items():
            up, down = tensors[f"{name}.up"], tensors[f"{name}.down"]
            if up.shape != (layer.out_features, config.rank) or down.shape != (
                config.rank,
                layer.in_features,
            ):
                raise ValueError(f"{name} has changes of another size")
            layer.weight.data += config.scale * (up @ down)
        self.heads.load_state_dict({key: tensors[key] for key in ("weight", "bias")})


class Rows:
    """Tokens of texts with what was said before them, as the encoder reads them."""

    def __init__(self, tokenizer: Any, config: EncoderConfig) -> None:
        self.tokenizer, self.config = tokenizer, config

    def read(self, texts: Sequence[str], contexts: Sequence[str]) -> tuple[list[Window], list[int]]:
        """((tokens before, tokens of the reply), its text's number) of each window; none for a blank text."""
        config, rows, owners = self.config, list[Window](), list[int]()
        own, before = (
            self.tokenizer(list(part), add_special_tokens=False)["input_ids"] for part in (texts, contexts)
        )
        for owner, (ids, earlier) in enumerate(zip(own, before, strict=True)):
            for start in window_starts(len(ids), config.window, config.stride):
                rows.append((earlier[-config.context :], ids[start : start + config.window]))
                owners.append(owner)
        return rows, owners

    @staticmethod
    def batch(rows: Sequence[Window]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of the encoder."""
        width = max(length_of(row) for row in rows)
        ids, segments, judged = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(3))
        for place, (before, own) in enumerate(rows):
            lead = [CLS, *before, SEP] if before else [CLS]
            ids[place, : len(lead) + len(own) + 1] = [*lead, *own, SEP]
            segments[place, len(lead) : len(lead) + len(own) + 1] = bool(before)
            judged[place, len(lead) : len(lead) + len(own)] = 1
        whole, kinds, rated = map(torch.from_numpy, (ids, segments, judged))
        return whole, kinds, whole > 0, rated > 0


def length_of(row: Window) -> int:
    before, own = row
    return len(own) + 2 + (len(before) + 1 if before else 0)


class EncoderScorer:
    for_reward = True

    def __init__(
        self, name: str, encoder: ToxicityEncoder, rows: Rows, fingerprint: str, device: torch.device
    ) -> None:
        self.name, self.rows, self.fingerprint, self.device = name, rows, fingerprint, device
        self.encoder = encoder.to(device).eval().requires_grad_(False)

    def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """(texts,): 0 (harmless) to 1 (abuse), each alone; 0 for a blank text."""
        return self._score(texts, [""] * len(texts))

    def score_replies(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> NDArray[np.float32]:
        """(replies,): the same, given what was said before each reply."""
        return self._score(replies, [" ".join(turn.text for turn in one) for one in dialogues])

    def _score(self, texts: Sequence[str], contexts: Sequence[str]) -> NDArray[np.float32]:
        return in_chunks(self._score_chunk, list(zip(texts, contexts, strict=True)), CHUNK)

    @torch.no_grad()
    def _score_chunk(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        scores = np.zeros(len(pairs), dtype=np.float32)
        rows, owners = self.rows.read([text for text, _ in pairs], [context for _, context in pairs])
        order, batches = batches_by_length([length_of(row) for row in rows], SLOTS[self.device.type])
        parts = []
        for batch in batches:
            own = [rows[place] for place in batch]
            logits = self.encoder(*(part.to(self.device) for part in self.rows.batch(own)))
            after = torch.tensor([bool(before) for before, _ in own], device=self.device)
            parts.append(torch.where(after, logits[:, 1], logits[:, 0]).sigmoid())
        if parts:
            np.maximum.at(scores, np.array(owners)[order], torch.cat(parts).cpu().numpy())
        return scores


def load_encoder(
    name: str, sizes: dict[str, Any], tensors: dict[str, Tensor], fingerprint: str, device: torch.device
) -> EncoderScorer:
    """From what a scorer folder holds."""
    base, own = sizes.get("base"), {key: value for key, value in sizes.items() if key != "base"}
    config = read_record(EncoderConfig, own, exact=True)
    network, tokenizer, digest = base_parts()
    if base != digest:
        raise InputError(f"{name} was trained on other weights of {JUDGE}; pip install 'backtalk[judge]'")
    encoder = ToxicityEncoder(network)
    encoder.merge(tensors, config)
    return EncoderScorer(name, encoder, Rows(tokenizer, config), fingerprint, device)
