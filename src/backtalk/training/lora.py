"""A low-rank adapter (LoRA, Hu et al. 2021) on a Hugging Face network, by peft, and its updates.

The base is frozen and never copied: with the adapter off, the network is the original one, to which NPO and
the KL term compare. The gradients of micro-batches, bounded in tokens, add up to that of the whole. There is
no dropout, so a row's loss does not depend on other rows, and the KL term is 0 before the first update.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.errors import InputError
from backtalk.models.device import free_memory, is_out_of_memory
from backtalk.models.transformer.scoring import Batch, Row, token_log_probs, token_logits
from backtalk.scorers.likelihood import pad_rows
from backtalk.training.mle import IntArray
from backtalk.training.negative import NOTHING, Hit
from backtalk.training.rules import HitWords
from backtalk.training.updates import Trainer, UpdateConfig

Hits = Collection[Hit]
TOKENS = {"cpu": 2048, "cuda": 16384}  # default size of a micro-batch


@dataclass(frozen=True, kw_only=True)
class LoraConfig:
    rank: int = 16
    alpha: float = 32.0  # the adapter's product is scaled by alpha / rank
    layers: str = "all"  # linear layers that get one: all of attention and MLP, or name endings, by commas
    seed: int = 1  # of its first weights; the product is 0 at first


class Adapter:
    """An adapter on a network, which is changed in place: the network itself now has the adapter on."""

    def __init__(self, network: Any, config: LoraConfig) -> None:
        try:
            import peft
        except ImportError:
            raise InputError("LoRA needs peft; pip install 'backtalk[lora]'") from None
        names = [name.strip() for name in config.layers.split(",") if name.strip() not in ("", "all")]
        settings: Any = peft.LoraConfig(
            r=config.rank,
            lora_alpha=config.alpha,  # type: ignore[arg-type, unused-ignore]
            target_modules=names or "all-linear",
            # GPT-2's layers hold their weights transposed.
            fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in network.modules()),
            task_type="SEQ_2_SEQ_LM" if network.config.is_encoder_decoder else "CAUSAL_LM",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            try:
                self.model: Any = peft.get_peft_model(network, settings)
            except ValueError as error:
                if not names:
                    raise
                first = str(error).splitlines()[0]
                raise InputError(f"--lora-layers {config.layers} names no layer ({first})") from None
        self.weights = _Weights(self.model)

    def off(self) -> Any:
        """A context manager in which the network is the original one."""
        return self.model.disable_adapter()

    def save(self, folder: Path) -> None:
        """adapter_config.json and adapter_model.safetensors, as peft writes and reads them."""
        # With "auto", its default, peft would ask the hub for the base's config.
        self.model.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)

    def merge(self) -> Any:
        """The network with the adapter in its weights; the adapter is gone then."""
        return self.model.merge_and_unload()


class _Weights(nn.Module):
    """The adapter's parameters and no others, shared with the network. peft keeps them in float32: in half
    precision they would lose most of Adam's small steps."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        for name, value in model.named_parameters():
            if value.requires_grad:
                self.register_parameter(name.removeprefix("base_model.model.").replace(".", "/"), value)


class LoraUpdates(Trainer):
    """Changes an adapter in place. Hits stay on the CPU until they are cut into micro-batches."""

    pad, device = NOTHING, torch.device("cpu")

    def __init__(
        self, adapter: Adapter, model: Any, config: UpdateConfig, tokens: int = 0, learnt: Hits | None = None
    ) -> None:
        """`model` has the `network` with the adapter, and `batch`, which makes its inputs of rows. With
        `learnt`, these pairs have no KL term in the positive loss, and the others nothing else."""
        super().__init__(adapter.weights, config)
        self.adapter, self.model = adapter, model
        self.avoid = torch.tensor(sorted({NOTHING, *config.avoid}))
        self.tokens = tokens or TOKENS[model.network.device.type]
        self.learnt = None if learnt is None else frozenset(learnt)
        model.network.eval()

    def negative(self, inputs: Tensor, targets: Tensor, share: float = 1.0) -> None:
        self.descend(lambda: self.away(rows_of(inputs, targets), share))

    def positive(self, inputs: IntArray, replies: IntArray, seed: int = 0) -> None:
        weight = self.config.lambda_pos + self.kl
        self.descend(lambda: self.towards(rows_of(inputs, replies), 1.0 / weight), weight)

    def both(self, inputs: Tensor, targets: Tensor, share: float, pairs: IntArray, replies: IntArray) -> None:
        hits, kept = rows_of(inputs, targets), rows_of(pairs, replies)
        keeps = self.config.lambda_pos + self.kl > 0
        self.descend(lambda: chain(self.away(hits, share), self.towards(kept, 1.0) if keeps else ()))

    @torch.no_grad()
    def log_probs(self, hits: Sequence[Hit]) -> list[list[float]]:
        found: list[list[float]] = []
        for part in self._micro_batches([Row(list(hit.trigger), list(hit.target)) for hit in hits]):
            batch = self.model.batch(part)
            tokens = iter(token_log_probs(self.model.network, batch).tolist())
            found += [list(islice(tokens, length)) for length in batch.lengths]
        return found

    def negative_loss(self, rows: Sequence[Row]) -> Tensor:
        """The method's loss of some hits: summed over a target's tokens, averaged over the hits."""
        assert self.config.method is not None
        batch = self.model.batch(rows)
        before = None
        if self.config.method.needs_baseline:
            with torch.no_grad(), self.adapter.off():
                before = _padded(token_log_probs(self.model.network, batch), batch)
        log_probs = _padded(token_log_probs(self.model.network, batch), batch)  # (hits, m)
        counted = ~torch.isin(pad_rows([row.reply for row in rows], NOTHING), self.avoid)
        return self.config.method.loss(HitWords(log_probs, counted.to(log_probs.device), before))

    def positive_loss(
        self, rows: Sequence[Row], words: int, over: int, learns: bool = True, keeps: bool = True
    ) -> Tensor:
        """The loss of a micro-batch: its negative log-likelihood over `over` if `learns`, plus its KL term
        over `words` if `keeps`. Both divisors count the whole batch."""
        batch = self.model.batch(rows)
        before = None
        if keeps and self.kl > 0:
            with torch.no_grad(), self.adapter.off():
                before = token_logits(self.model.network, batch).log_softmax(1)
        logs = token_logits(self.model.network, batch).log_softmax(1)  # (tokens, vocabulary)
        terms = []
        if learns:
            own = logs.gather(1, batch.targets[:, None])[:, 0]  # (tokens,)
            terms.append(-self.config.lambda_pos * own.sum() / over)
        if before is not None:
            terms.append(self.kl * F.kl_div(logs, before, reduction="sum", log_target=True) / words)
        return torch.stack(terms).sum()

    def away(self, rows: Sequence[Row], share: float) -> Iterator[Tensor]:
        """The terms of the method's mean over the hits times `share`, one for each micro-batch."""
        for part in self._micro_batches(rows):
            yield share * len(part) / len(rows) * self.negative_loss(part)

    def towards(self, rows: Sequence[Row], scale: float) -> Iterator[Tensor]:
        """The terms of the positive loss times `scale`, one for each micro-batch."""
        over = sum(len(row.reply) for row in rows) if self.config.mean_over == "words" else len(rows)
        kinds = [(rows, True, True)]
        if self.learnt is not None:
            learnt = [row for row in rows if Hit(tuple(row.prompt), tuple(row.reply)) in self.learnt]
            kinds = [(learnt, True, False), ([row for row in rows if row not in learnt], False, True)]
        for some, learns, keeps in kinds:
            if learns or self.kl > 0:
                words = sum(len(row.reply) for row in some)
                for part in self._micro_batches(some):
                    yield scale * self.positive_loss(part, words, over, learns, keeps)

    def _micro_batches(self, rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
        for start, end in cut([len(row.prompt) + len(row.reply) for row in rows], self.tokens):
            yield rows[start:end]

    def descend(self, terms: Callable[[], Iterator[Tensor]], weight: float = 1.0) -> None:
        """One step down the sum of the terms. When memory runs out, micro-batches are halved, once."""
        if not self._backward(terms()):
            self.tokens //= 2
            if not self._backward(terms()):
                why = f"{self.tokens} tokens at once need too much memory"
                raise InputError(f"{why}; use a smaller --micro-tokens")
        self.step(weight)

    def _backward(self, terms: Iterator[Tensor]) -> bool:
        """Computes the gradients. Returns False, and leaves none, when memory runs out."""
        try:
            for term in terms:
                term.backward()  # type: ignore[no-untyped-call]
                del term  # frees its graph before the next is computed
            return True
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        self.optimizer.zero_grad(set_to_none=True)
        free_memory()
        return False


def rows_of(prompts: Tensor | IntArray, replies: Tensor | IntArray) -> list[Row]:
    """Rows of ids without their padding."""
    both = zip(prompts.tolist(), replies.tolist(), strict=True)
    return [Row([i for i in a if i != NOTHING], [i for i in b if i != NOTHING]) for a, b in both]


def cut(lengths: Sequence[int], tokens: int) -> Iterator[tuple[int, int]]:
    """(start, end) of runs of rows whose number times the longest is at most `tokens`, or of a single row."""
    start, longest = 0, 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        if place > start and (place + 1 - start) * longest > tokens:
            yield start, place
            start, longest = place, length
    if lengths:
        yield start, len(lengths)


def _padded(flat: Tensor, batch: Batch) -> Tensor:
    """(tokens,) -> (rows, m), 0 where there is no token."""
    width = max(batch.lengths)
    places = [row * width + t for row, length in enumerate(batch.lengths) for t in range(length)]
    whole = flat.new_zeros(len(batch.lengths) * width)
    return whole.index_copy(0, torch.tensor(places, device=flat.device), flat).view(-1, width)
