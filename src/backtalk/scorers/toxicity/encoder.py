"""The encoder as a scorer: all-MiniLM-L6-v2 from an installed package, with low-rank changes of its weights
(LoRA, Hu et al. 2021) and two heads, for a text alone and for a reply after what was said before it.

What was said before is the first segment. A long reply is read in overlapping windows, and the worst counts.
Only our changes ship; they are added to the package's weights, which are checked by their sha256.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.models.transformer.library import file_hash
from backtalk.scorers.similarity import JUDGE, load_minilm
from backtalk.scorers.toxicity.network import batches_by_length
from backtalk.store.typed import read_record
from backtalk.types import Dialogue

SLOTS = {"cpu": 1024, "cuda": 1 << 17}  # tokens of a batch, padding included
CHUNK = 1 << 14  # texts that are sorted by length together
CLS, SEP = 101, 102
Ints = NDArray[np.int64]
CPU = torch.device("cpu")
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

    def forward(self, ids: Tensor, segments: Tensor, keep: Tensor | None, judged: Tensor) -> Tensor:
        """(rows, 2) of (rows, width) tokens. `keep` is False for padding and None where there is none,
        `judged` is True for what is rated."""
        # The network as a whole would look into the mask, and so make the host wait for a GPU.
        x = self.network.embeddings(input_ids=ids, token_type_ids=segments)
        mask = None if keep is None else keep[:, None, None]
        out = self.network.encoder(x, attention_mask=mask).last_hidden_state
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


def to_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """A copy that the host does not wait for."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


class Windows:
    """The tokens of texts and of what was said before them, in the pieces that the encoder reads at once."""

    def __init__(
        self,
        tokens: Ints,
        before: Ints,
        own: Ints,
        owners: Ints,
        marks: tuple[int, int],
        device: torch.device,
    ) -> None:
        self.owners, self.device, self._marks = owners, device, marks
        """The number of each window's text."""
        self.lengths = own[:, 1] + 2 + before[:, 1] + (before[:, 1] > 0)
        self.after = before[:, 1] > 0
        """Whether something was said before."""
        self._tokens = to_device(tokens, device)
        # (windows, 4): where the context starts, its length, where the text starts, its length
        self._places = to_device(np.concatenate([before, own], 1), device)

    def __len__(self) -> int:
        return len(self.owners)

    def some(self, rows: Ints) -> "Windows":
        """The windows of these numbers."""
        kept = copy(self)
        kept.owners, kept.lengths, kept.after = self.owners[rows], self.lengths[rows], self.after[rows]
        kept._places = self._places[to_device(rows, self.device)]
        return kept

    def batch(self, rows: Sequence[int] | Ints) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """The arguments of the encoder: each row is CLS context SEP text SEP, or CLS text SEP."""
        rows = np.asarray(rows, dtype=np.int64)
        lengths = self.lengths[rows]
        column = torch.arange(int(lengths.max()), device=self.device)
        places = self._places[to_device(rows, self.device)]
        context, before, start, own = places.unsqueeze(2).unbind(1)  # (rows, 1) each
        lead = torch.where(before > 0, before + 2, 1)
        end = lead + own
        judged = (column >= lead) & (column < end)
        said = (column >= 1) & (column <= before)
        at = torch.where(judged, column - lead + start, torch.where(said, column - 1 + context, 0))
        first, last = self._marks
        marks = torch.where((column == end) | (column == lead - 1), last, 0)
        marks[:, 0] = first
        keep = column <= end
        ids = torch.where(judged | said, self._tokens[at], marks)
        segments = ((column >= lead) & keep & (before > 0)).long()
        return ids, segments, None if lengths.min() == len(column) else keep, judged


class Rows:
    """Reads texts with what was said before them into windows."""

    def __init__(self, tokenizer: Any, config: EncoderConfig, marks: tuple[int, int] = (CLS, SEP)) -> None:
        self.config, self.marks = config, marks
        self.tokenizer = tokenizer.backend_tokenizer
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def read(self, texts: Sequence[str], contexts: Sequence[str], device: torch.device = CPU) -> Windows:
        """The windows of each text; a blank one has none."""
        config = self.config
        own, lengths = self._encode(texts)
        said, spoken = self._encode(contexts)
        counts = np.ceil((lengths - config.window) / config.stride).clip(0) + (lengths > 0)
        owners = np.repeat(np.arange(len(texts)), counts.astype(np.int64))
        first = np.searchsorted(owners, owners)  # each window's first sibling
        skipped = (np.arange(len(owners)) - first) * config.stride
        kept = spoken.clip(max=config.context)
        before = np.stack([len(own) + np.cumsum(spoken) - kept, kept], 1)[owners]
        places = np.stack(
            [
                (np.cumsum(lengths) - lengths)[owners] + skipped,
                (lengths[owners] - skipped).clip(max=config.window),
            ],
            1,
        )
        return Windows(np.concatenate([own, said]), before, places, owners, self.marks, device)

    def _encode(self, texts: Sequence[str]) -> tuple[Ints, Ints]:
        """The tokens of all texts, one after another, and how many each has."""
        if not any(texts):
            return np.zeros(0, dtype=np.int64), np.zeros(len(texts), dtype=np.int64)
        found = [one.ids for one in self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]
        lengths = np.fromiter(map(len, found), dtype=np.int64, count=len(found))
        tokens = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=int(lengths.sum()))
        return tokens, lengths


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

    @torch.no_grad()
    def _score(self, texts: Sequence[str], contexts: Sequence[str]) -> NDArray[np.float32]:
        """A GPU still computes one chunk while the next one is read: nothing waits for it before the end."""
        starts = range(0, len(texts), CHUNK)
        parts = [self._score_chunk(texts[at : at + CHUNK], contexts[at : at + CHUNK]) for at in starts]
        found: NDArray[np.float32] = (
            torch.cat(parts).cpu().numpy() if parts else np.zeros(0, dtype=np.float32)
        )
        return found

    def _score_chunk(self, texts: Sequence[str], contexts: Sequence[str]) -> Tensor:
        windows = self.rows.read(texts, contexts, self.device)
        order, batches = batches_by_length(windows.lengths.tolist(), SLOTS[self.device.type])
        scores = torch.zeros(len(texts), device=self.device)
        if order:
            logits = torch.cat([self.encoder(*windows.batch(rows)) for rows in batches])
            chances = logits.float().sigmoid()  # of a network in 16 bits, too
            own, after = (to_device(part[order], self.device) for part in (windows.owners, windows.after))
            scores.scatter_reduce_(0, own, torch.where(after, chances[:, 1], chances[:, 0]), "amax")
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
