"""Continues texts a token at a time with a KV cache in fixed slots, so that a step is one CUDA graph.

Each distinct prompt is read once, in batches of similar length, padded on the right and without a mask. Then
all rows write their new tokens into the same slots, and a mask hides the padding between. On a GPU a step
(network and sampling) is captured once for each shape; nothing is read back before the last token. The first
batch is checked against a plain forward pass; if the check fails, transformers' `generate` is used.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from backtalk.deadline import check_time
from backtalk.models.gpu.graph import FastPath, Graphs
from backtalk.models.transformer.attention import Layers, cache_in_slots, grouped_attention, layers_of
from backtalk.models.transformer.generation import Drawing, Task, continue_by_library, until
from backtalk.models.transformer.memory import MOST_TOKENS, PASS_TOKENS, parts_of
from backtalk.models.transformer.scoring import Row, make_batch, pad_right, run_at, token_logits

LEAST = {"cpu": 0, "cuda": 64}
"""Rows and lengths are padded to 1, 1.5, 2, 3, 4, 6 ... times this, for few shapes and graphs; 0: never."""
CHECKED = 8  # most rows whose last logits are compared
WARM_UP = 2  # steps before a capture


class Rows(Drawing):
    """The state of a batch while it is written."""

    def __init__(self, task: Task, ids: Tensor, keep: Tensor, vocabulary: int, layers: Layers) -> None:
        super().__init__(task, ids, keep, vocabulary)
        rows, width = keep.shape
        most, device, dtype = task.sampling.most, keep.device, layers.keys[0].dtype
        self.layers, self.width = layers, width
        self.place = torch.full((1,), width - 1, device=device)
        self.position = keep.sum(1, keepdim=True) - 1  # (rows, 1)
        self.token = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self.written = torch.zeros(rows, most, dtype=torch.long, device=device)
        # 0 where a slot may be seen, else the smallest number: a row of -inf alone would become NaN.
        self.mask = torch.full((rows, 1, 1, width + most), torch.finfo(dtype).min, dtype=dtype, device=device)
        self.mask[:, 0, 0, :width].masked_fill_(keep.bool(), 0.0)

    def take(self, logits: Tensor) -> None:
        """Samples the next token of each row from logits (rows, vocabulary)."""
        at = self.step.clone()
        self.token.copy_(self.choose(logits)[:, None])
        self.written.index_copy_(1, at, self.token)
        self.position += 1
        self.place += 1
        self.mask.index_fill_(3, self.place, 0.0)

    def state(self) -> list[Tensor]:
        """All tensors but the keys and values."""
        return [value for value in vars(self).values() if isinstance(value, Tensor)]

    def become(self, state: list[Tensor]) -> None:
        for own, new in zip(self.state(), state, strict=True):
            own.copy_(new)


class Stepper:
    """Continues texts with one causal network, and keeps its graphs."""

    def __init__(self, network: Any) -> None:
        self.network = network
        self.steps = FastPath()  # whether the steps agree with a plain forward pass
        self.memory = torch.zeros(0)  # one block of memory, which each batch uses for its KV cache
        self._graphs: dict[tuple[Any, ...], tuple[Rows, Callable[[], Tensor]]] = {}
        self._captures = Graphs()

    def continued(self, task: Task) -> list[list[int]]:
        """The tokens that the network continues each prompt with, without the end of turn."""
        written = self.write(task)
        if written is None:
            return continue_by_library(self.network, task)
        return [until(row, task.stops) for row in written]

    @torch.no_grad()
    def write(self, task: Task) -> list[list[int]] | None:
        """The new tokens of each row; None if `generate` must be used."""
        if task.sampling.most < 2:  # one token needs no steps
            return None
        if self.steps.tries and not self.steps.check(lambda: self._compare(task), self.network.dtype):
            self._forget_graphs()
            self.memory = torch.zeros(0)
        return self._write(task)[0] if self.steps.on else None

    def _compare(self, task: Task) -> dict[str, float]:
        """The distance of the last step's logits from those of a plain forward pass."""
        written, logits = self._write(task)
        every = -(-len(written) // CHECKED)  # rows of all lengths
        rows = [Row([*p, *w[:-1]], [w[-1]]) for p, w in zip(task.prompts, written, strict=True)]
        plain = token_logits(self.network, make_batch(rows[::every], task.pad, self.network.device))
        found = logits[: len(written) : every].float()
        return {"log-probability": float((plain.log_softmax(1) - found.log_softmax(1)).abs().mean())}

    def _write(self, task: Task) -> tuple[list[list[int]], Tensor]:
        """The tokens, and the logits of the last one."""
        rows, logits = self._begin(task)
        on_gpu = rows.token.is_cuda
        step: Callable[[], Tensor] = lambda: self._advance(rows)  # noqa: E731
        if on_gpu:
            rows, step = self._captured(rows)
        count = 1
        while count < task.sampling.most:
            # On a GPU waiting for the answer takes longer than the steps that it saves.
            if not on_gpu and bool(rows.ends[rows.written[:, :count]].any(1).all()):
                break
            check_time()
            logits = step()
            count += 1
        if bool(logits.isnan().any()):  # a mask does not hide NaN keys from the next batch
            self.memory.zero_()
        return rows.written[: len(task.prompts), :count].tolist(), logits

    def _begin(self, task: Task) -> tuple[Rows, Tensor]:
        """Reads the prompts and samples the first tokens."""
        device = self.network.device
        extra = filled(len(task.prompts), device) - len(task.prompts)
        prompts = [tuple(prompt) for prompt in task.prompts]
        distinct = sorted(dict.fromkeys(prompts), key=len, reverse=True)
        prompts += distinct[-1:] * extra  # padding rows share a prompt that is read anyway
        numbers = {prompt: number for number, prompt in enumerate(distinct)}
        whose = [numbers[prompt] for prompt in prompts]
        ids, keep = pad_right(distinct, task.pad, device, filled(len(distinct[0]), device))
        by = max(LEAST[device.type], 1)  # finer: reading is no graph, and padding costs time
        widths = [max(len(prompt) + -len(prompt) % by, 1) for prompt in distinct]
        logits, layers = self._read_prompts(ids, keep, widths, whose, task.sampling.most)
        task = task._replace(seeds=[*task.seeds, *[0] * extra])
        rows = Rows(task, ids[whose], keep[whose], logits.shape[1], layers)
        rows.take(logits)
        return rows, logits

    def _read_prompts(
        self, ids: Tensor, keep: Tensor, widths: list[int], whose: list[int], most: int
    ) -> tuple[Tensor, Layers]:
        """The float32 logits after the prompt of each row (rows, vocabulary), and a cache with room for
        `most` more tokens.

        `ids` and `keep` are (prompts, length), the longest prompt first, padded on the right, where a causal
        network does not see it. Each prompt is read once, in parts of similar length, at least `widths` wide.
        Row r has the prompt `whose[r]`.
        """
        # Copied to the GPU before the first pass: a later copy would wait for the pass.
        order = sorted(range(len(whose)), key=whose.__getitem__)
        rows, prompt_of = torch.tensor(order, device=ids.device), torch.tensor(whose, device=ids.device)
        last = keep.sum(1) - 1
        layers: Layers | None = None
        logits = []
        for start, stop in parts_of(widths, MOST_TOKENS[ids.device.type], PASS_TOKENS[ids.device.type]):
            part = ids[start:stop, : widths[start]].contiguous()
            places = last[start:stop] + torch.arange(len(part), device=ids.device) * part.shape[1]
            _, found, past = run_at(self.network, {"input_ids": part, "use_cache": True}, places)
            logits.append(found)
            read = layers_of(past)
            if layers is None:
                layers = self.slots(read, len(order), ids.shape[1] + most)
            first, end = (bisect_left(order, prompt, key=whose.__getitem__) for prompt in (start, stop))
            own = rows[first:end]
            from_prompt = prompt_of[own] - start
            for wide, value in zip([*layers.keys, *layers.values], [*read.keys, *read.values], strict=True):
                wide[:, :, : value.shape[2]].index_copy_(0, own, value.index_select(0, from_prompt))
            del past, read, value  # before the next part is read
        assert layers is not None
        return torch.cat(logits).index_select(0, prompt_of).float(), layers

    def slots(self, like: Layers, rows: int, slots: int) -> Layers:
        """A cache for so many rows and slots. It holds the numbers of the last batch; masks hide them."""
        both = [*like.keys, *like.values]
        shapes = [(rows, value.shape[1], slots, value.shape[3]) for value in both]
        sizes = [math.prod(shape) for shape in shapes]
        own, new = self.memory, both[0]
        if own.numel() < sum(sizes) or (own.dtype, own.device) != (new.dtype, new.device):
            del own
            self.memory = new.new_zeros(0)  # the old and the new block may not fit together
            self._forget_graphs()
            self.memory = new.new_zeros(sum(sizes))
        split = torch.split(self.memory[: sum(sizes)], sizes)
        found = [part.view(shape) for part, shape in zip(split, shapes, strict=True)]
        return Layers(found[: len(like.keys)], found[len(like.keys) :])

    def _advance(self, rows: Rows) -> Tensor:
        """Samples one more token of each row; returns its logits."""
        with grouped_attention(self.network):
            past = cache_in_slots(rows.layers, rows.place)
            where = {"attention_mask": rows.mask, "position_ids": rows.position}
            found = self.network(input_ids=rows.token, past_key_values=past, use_cache=True, **where)
        logits: Tensor = found.logits[:, -1]
        rows.take(logits)
        return logits

    def _captured(self, rows: Rows) -> tuple[Rows, Callable[[], Tensor]]:
        """The batch in the memory that the graph of its shape reads, and the graph."""
        key = (*rows.mask.shape, rows.width, rows.sampling)
        if key not in self._graphs:
            start = [value.clone() for value in rows.state()]

            def warm_up() -> None:
                self._advance(rows)
                rows.become(start)

            step = self._captures.capture(lambda: self._advance(rows), warm_up, WARM_UP)
            self._graphs[key] = rows, step
            return rows, step
        own, step = self._graphs[key]
        own.become(rows.state())
        return own, step

    def _forget_graphs(self) -> None:
        self._graphs.clear()
        self._captures.clear()


def filled(count: int, device: torch.device) -> int:
    """`count` rows or tokens, padded to one of a few sizes."""
    size = LEAST[device.type]
    while 0 < size < count:
        size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
    return size or max(count, 1)
