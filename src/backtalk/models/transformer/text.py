"""A Hugging Face model, causal or encoder-decoder, at the level of text: replies and log-probabilities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

import torch

from backtalk.errors import InputError
from backtalk.models.gpu.fused_layers import Fused, fuse_layers
from backtalk.models.transformer.generation import continue_texts, write
from backtalk.models.transformer.memory import (
    MOST_TOKENS,
    PASS_TOKENS,
    WRITTEN_TOKENS,
    Footprint,
    footprint,
    run_batches,
)
from backtalk.models.transformer.prompts import Prompts, make_prompts
from backtalk.models.transformer.sampling import SamplingConfig, Task
from backtalk.models.transformer.scoring import Batch, Row, make_batch, token_log_probs
from backtalk.models.transformer.stepping import Stepper, filled
from backtalk.specs.model import ModelOptions
from backtalk.terminal import note
from backtalk.types import Dialogue

M = TypeVar("M", bound="TextTransformer")


@dataclass
class TextTransformer:
    """A network with its tokenizer and its prompts."""

    name: str
    network: Any
    tokenizer: Any
    prompts: Prompts
    fingerprint: str
    options: ModelOptions = field(default_factory=ModelOptions)
    context: int | None = None
    """The most tokens of prompt and reply, or of an encoder's prompt; None: no limit."""
    _warned: bool = field(default=False, kw_only=True)
    _stepper: Stepper | None = field(default=None, kw_only=True)

    @property
    def device(self) -> torch.device:
        return torch.device(self.network.device)

    @property
    def filler(self) -> int:
        """The padding id, which is masked; the end of turn would look like padding on the wrong side."""
        own = self.tokenizer.pad_token_id
        return int(own) if own not in (None, self.prompts.end) else int(self.prompts.end == 0)

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(self.network.config.is_encoder_decoder)

    @property
    def footprint(self) -> Footprint:
        return footprint(self.network.config, self.network.dtype.itemsize)

    @property
    def at_once(self) -> int:
        """Queries that take about ten seconds: the most that a killed run loses."""
        return 32 if self.device.type == "cpu" else 512

    @property
    def read_as(self) -> dict[str, str]:
        usual = "chat" if getattr(self.tokenizer, "chat_template", None) else "plain"
        return {
            "template": self.options.template if self.options.template != "auto" else usual,
            "system": self.options.system,
            "dtype": str(self.network.dtype).removeprefix("torch."),
        }

    def adjusted(self: M, system: str | None = None, max_reply: int | None = None) -> M:
        """The same weights with another system prompt, and with replies that are no longer."""
        options = self.options if system is None else replace(self.options, system=system)
        prompts = self.prompts
        if options.system != self.options.system:
            prompts = make_prompts(self.name, self.network, self.tokenizer, options)
        if max_reply is not None:
            options = replace(options, max_reply=min(max_reply, options.max_reply))
        mark = f"{self.fingerprint}/{options.system}/{options.max_reply}"
        return replace(self, prompts=prompts, options=options, fingerprint=mark)

    # --- replies -------------------------------------------------------------------------------------

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        """The tokens of a prompt, as the reply starts behind them; a long dialogue loses its oldest part."""
        return self._prompt(dialogue, self.options.max_reply)

    def reply_ids(self, text: str) -> list[int]:
        """The tokens of a reply with its end of turn."""
        return self.prompts.reply_ids(text)

    def read(self, ids: Sequence[int]) -> str:
        """The text of a reply's tokens."""
        how = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return str(self.tokenizer.decode(list(ids), **how)).strip()

    def tokens(self, reply: str) -> list[str]:
        return [str(self.tokenizer.decode([token])).strip() for token in self.reply_ids(reply)[:-1]]

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return self._reply(dialogues, None)

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        if len(dialogues) != len(seeds):
            raise InputError(f"{len(dialogues)} dialogues but {len(seeds)} seeds; give one seed for each")
        return self._reply(dialogues, seeds)

    def _reply(self, dialogues: Sequence[Dialogue], seeds: Sequence[int] | None) -> list[str]:
        prompts = [self.prompt_ids(dialogue) for dialogue in dialogues]
        own, most = self.prompts, self.options.max_reply

        def answer(rows: list[int]) -> list[list[int]]:
            drawn = None if seeds is None else [seeds[row] for row in rows]
            read = [prompts[row] for row in rows]
            return write(self.network, read, own.lead, own.stops, self.filler, most, drawn)

        return [self.read(ids) for ids in self._written(list(map(len, prompts)), most, answer, MOST_TOKENS)]

    def continued(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: SamplingConfig
    ) -> list[list[int]]:
        """The tokens that each prompt is continued with; a row depends on its own seed alone."""
        special = {*self.tokenizer.all_special_ids} - self.prompts.stops
        if self._stepper is None or self._stepper.network is not self.network:
            self._stepper = Stepper(self.network)
        stepper = self._stepper

        def go_on(rows: list[int]) -> list[list[int]]:
            read, drawn = [prompts[row] for row in rows], [seeds[row] for row in rows]
            task = Task(read, drawn, sampling, self.prompts.stops, special, self.filler)
            return continue_texts(self.network, stepper, task)

        lengths = [filled(len(prompt), self.device) for prompt in prompts]
        return self._written(lengths, sampling.most, go_on, WRITTEN_TOKENS)

    def _written(
        self,
        lengths: list[int],
        most: int,
        work: Callable[[list[int]], list[list[int]]],
        tokens: dict[str, int],
    ) -> list[list[int]]:
        need = self.footprint
        return run_batches(lengths, lambda length: need.writing(length, most), work, self.device, tokens)

    @property
    def written_by(self) -> str:
        """How texts are continued, as far as it was tried."""
        if self._stepper is None or self._stepper.steps.tries:
            return "not tried yet"
        steps, captured = self._stepper.steps, ", as CUDA graphs" * (self.device.type == "cuda")
        return f"in steps of our own{captured}" if steps.on else f"by the library ({steps.why})"

    def fuse_layers(self) -> Fused:
        """Computes in fewer kernels on a GPU. Captured steps are dropped if anything changed."""
        network = self.network
        before, found = getattr(network, "_fused", Fused()), fuse_layers(network)
        if found != before:
            network._fused = found
            self.forget_steps()
        return found

    def forget_steps(self) -> None:
        """Drops captured CUDA graphs; needed after modules of the network were replaced."""
        self._stepper = None

    # --- log-probabilities ---------------------------------------------------------------------------

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        if len(dialogues) != len(replies):
            raise InputError(f"{len(dialogues)} dialogues but {len(replies)} replies; give one for each")
        return self.score_rows([self.row(*pair) for pair in zip(dialogues, replies, strict=True)])

    def row(self, dialogue: Dialogue, reply: str, most: int | None = None) -> Row:
        """A prompt that leaves room for the reply, and at most `most` tokens of the reply."""
        tokens = self.reply_ids(reply)[:most]
        return Row(self._prompt(dialogue, max(self.options.max_reply, len(tokens))), tokens)

    @property
    def scores_text(self) -> bool:
        return not self.is_encoder_decoder

    def text_log_prob(self, texts: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each text, as a user's; a text that is too long is cut."""
        rows = [Row(*self.prompts.text_ids(text)) for text in texts]
        if self.context is not None:
            rows = [Row(row.prompt, row.reply[: self.context - len(row.prompt)]) for row in rows]
        found = iter(self.score_rows([row for row in rows if row.reply]))
        return [next(found) if row.reply else [] for row in rows]

    def score_rows(self, rows: Sequence[Row], masked: bool = True) -> list[list[float]]:
        """The log-probability of each reply token of each row. Attention is quicker without a mask: a causal
        network can't see the padding, which stands on the right."""
        need = self.footprint
        longest = max((len(row.reply) for row in rows), default=0)

        @torch.no_grad()
        def score(numbers: list[int]) -> list[list[float]]:
            batch = self.batch([rows[number] for number in numbers])
            if not masked and not self.is_encoder_decoder:
                del batch.inputs["attention_mask"]
            found = iter(token_log_probs(self.network, batch).tolist())
            return [list(islice(found, length)) for length in batch.lengths]

        return run_batches(
            [len(row.prompt) + len(row.reply) for row in rows],
            lambda length: need.scoring(length, min(longest, length)),
            score,
            self.device,
            worth=PASS_TOKENS,
        )

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows as tensors, for `token_logits` and `token_log_probs`."""
        return make_batch(rows, self.filler, self.device, self.prompts.lead)

    # --- inside --------------------------------------------------------------------------------------

    def _prompt(self, dialogue: Dialogue, reply_tokens: int) -> list[int]:
        if not dialogue:
            raise InputError("a dialogue has no turns; give at least one utterance to reply to")
        *earlier, last = dialogue
        text = f"{self.options.prefix}{last.text}{self.options.suffix}"
        ids = self.prompts.prompt_ids((*earlier, last._replace(text=text)))
        if self.context is None:
            return ids
        if self.context <= reply_tokens:
            why = f"a reply of {reply_tokens} tokens does not fit {self.name}"
            raise InputError(f"{why} ({self.context} tokens with the prompt); use a smaller --max-reply")
        room = self.context if self.is_encoder_decoder else self.context - reply_tokens
        if len(ids) <= room:
            return ids
        if not self._warned:
            self._warned = True
            note(f"{self.name} holds {self.context} tokens: the oldest part of longer prompts is cut")
        first, last_fixed = self.prompts.fixed(ids)
        return ids[:first] + ids[len(ids) - max(room - first, last_fixed) :]
