"""A Llama-like decoder (Llama, Mistral, Qwen 2 and 3, SmolLM2) with a few kernels a layer, for searches.

The library's network launches some twenty kernels a layer, which takes a processor longer than a GPU needs
for a small batch, and reads and writes every intermediate result of a large one. Here a layer is two norms,
seven products, one attention that also rotates, and one gate; sums are added in place. The weights are the
network's own. `triggers.py` compares the scores with the network's before it uses them.
"""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.gpu.fused import kernels_for
from backtalk.models.transformer.attention import Layers

Pair = tuple[Tensor, Tensor]
Angles = Pair  # cos and sin (tokens, size), the first half of each sin negative


class Block(namedtuple("Block", "before query key value query_norm key_norm out middle gate up down")):
    """The modules of one layer of the network. `before` and `middle` are the norms before attention and MLP;
    the norms of each head's query and key are None if there are none."""

    @classmethod
    def of(cls, layer: Any) -> "Block":
        own, mlp = layer.self_attn, layer.mlp
        query_norm, key_norm = (getattr(own, name, None) for name in ("q_norm", "k_norm"))
        return cls(
            layer.input_layernorm, own.q_proj, own.k_proj, own.v_proj, query_norm, key_norm, own.o_proj,
            layer.post_attention_layernorm, mlp.gate_proj, mlp.up_proj, mlp.down_proj,
        )  # fmt: skip

    def is_plain(self) -> bool:
        """Whether these are linear layers and RMS norms alone, without adapters or hooks."""
        norms = [one for one in self if one is not None and hasattr(one, "variance_epsilon")]
        linear = [one for one in self if type(one) is nn.Linear]
        return (
            len(linear) == 7
            and len(norms) + len(linear) == sum(one is not None for one in self)
            and not any(one._forward_hooks or one._forward_pre_hooks for one in (*linear, *norms))
            and self.out.bias is None
            and self.down.bias is None
        )


@dataclass(frozen=True)
class Decoder:
    network: Any
    body: Any  # the network without its output layer
    blocks: list[Block]
    size: int  # of a head

    @classmethod
    def of(cls, network: Any) -> "Decoder | None":
        """None if the network is not like Llama."""
        body: Any = getattr(network, network.base_model_prefix, None)
        config = network.config
        window = getattr(config, "sliding_window", None)
        if config.is_encoder_decoder or window or getattr(config, "hidden_act", "") != "silu":
            return None
        try:
            blocks = [Block.of(layer) for layer in body.layers]
            found = cls(network, body, blocks, int(body.layers[0].self_attn.head_dim))
            angles = found.angles(1)
            is_plain = type(body.embed_tokens) is nn.Embedding
        except (AttributeError, TypeError, IndexError):
            return None
        is_plain = is_plain and all(block.is_plain() for block in blocks)
        return found if is_plain and angles[0].shape[1] == found.size else None

    def is_current(self) -> bool:
        """Whether the network still has these layers: an adapter replaces them."""
        layers = zip(self.blocks, self.body.layers, strict=True)
        return all(block == Block.of(layer) for block, layer in layers)

    @torch.no_grad()
    def angles(self, tokens: int) -> Angles:
        places = torch.arange(tokens, device=self.network.device)[None]
        cos, sin = self.body.rotary_emb(places.float(), places)
        signs = torch.ones_like(sin[0])
        signs[:, : self.size // 2] = -1
        return cos[0].contiguous(), (sin[0] * signs).contiguous()

    @torch.no_grad()
    def past(self, ids: Tensor) -> Layers:
        """The keys, not rotated, and the values of (groups, p) ids."""
        found = Layers([], [])
        self.hidden(self.body.embed_tokens(ids), None, None, found)
        return found

    def hidden(
        self,
        embedded: Tensor,
        past: Layers | None,
        places: Tensor | None,
        keep: Layers | None = None,
        branches: float = 1.0,
    ) -> Tensor:
        """(tokens, H): the normalised last hidden states at `places` (tokens,) of the flattened (rows, s), of
        embedded tokens (rows, s, H) behind the past of their groups. `keep` receives the keys and values.
        Gradients through attention and MLP, beside the residual connection, are scaled by `branches`.
        Differentiable if gradients are on; otherwise `embedded` is overwritten."""
        rows, s = embedded.shape[:2]
        p = 0 if past is None else past.keys[0].shape[2]
        kernels = None if torch.is_grad_enabled() else kernels_for(embedded, "tails")
        attend = plain_attention if kernels is None else kernels.tail_attention
        angles = self.angles(p + s)
        h = embedded.flatten(0, 1)  # (rows x s, H)
        for number, block in enumerate(self.blocks):
            x = _normed(block.before, h)
            heads = [layer(x).view(rows, s, -1, self.size) for layer in (block.query, block.key, block.value)]
            for i, norm in enumerate((block.query_norm, block.key_norm)):
                heads[i] = heads[i] if norm is None else _normed(norm, heads[i])
            query, key, value = (part.transpose(1, 2) for part in heads)  # (rows, heads, s, size)
            if keep is not None:
                keep.keys.append(key)
                keep.values.append(value)
            empty = key[:1, :, :0], value[:1, :, :0]
            before: Pair = empty if past is None else (past.keys[number], past.values[number])
            seen = attend(query, before, (key, value), self.size**-0.5, angles).reshape(rows * s, -1)
            if places is not None and number == len(self.blocks) - 1:
                seen, h = seen[places], h[places]
            h = _add_product(h, _damped(seen, branches), block.out)
            x = _normed(block.middle, h)
            gate, up = block.gate(x), block.up(x)
            middle = kernels.gated(gate, up) if kernels else F.silu(gate) * up
            h = _add_product(h, _damped(middle, branches), block.down)
        return _normed(self.body.norm, h)


def _normed(norm: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)


def _damped(x: Tensor, share: float) -> Tensor:
    """x, through which only a share of the gradient flows."""
    return x if share == 1 else share * x + (1 - share) * x.detach()


def _add_product(total: Tensor, x: Tensor, layer: nn.Linear) -> Tensor:
    """total + x W'; in place if there are no gradients."""
    if torch.is_grad_enabled():
        return torch.addmm(total, x, layer.weight.t())
    return total.addmm_(x, layer.weight.t())


def plain_attention(query: Tensor, past: Pair, own: Pair, scale: float, angles: Angles) -> Tensor:
    """The kernel `tail_attention` in plain PyTorch; differentiable."""
    each, sharing, s = len(query) // len(past[0]), query.shape[1] // own[0].shape[1], query.shape[2]
    p = past[0].shape[2]
    both = zip(past, own, strict=True)
    keys, values = (torch.cat([before.repeat_interleave(each, 0), new], 2) for before, new in both)
    query, keys = rotated(query, *(part[p:] for part in angles)), rotated(keys, *angles)
    keys, values = (part.repeat_interleave(sharing, 1) for part in (keys, values))
    seen = torch.ones(s, p + s, dtype=torch.bool, device=query.device).tril(p)
    found = F.scaled_dot_product_attention(query, keys, values, attn_mask=seen, scale=scale)
    return found.transpose(1, 2)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """(rows, heads, tokens, size), each pair (x_i, x_{i + size / 2}) turned by its angle, in float32."""
    return (x * cos + x.roll(x.shape[3] // 2, 3) * sin).to(x.dtype)
