"""A Hugging Face model, causal or encoder-decoder, as the protocol asks: replies and log-probabilities here,
what a search reads of its weights in weights.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Protocol

import torch

from backtalk.errors import InputError
from backtalk.models.transformer.generation import continue_texts, write
from backtalk.models.transformer.like_length import PASS_TOKENS
from backtalk.models.transformer.memory import WRITTEN_TOKENS, Footprint, footprint, run_batches
from backtalk.models.transformer.reading import Tally
from backtalk.models.transformer.sampling import SamplingConfig
from backtalk.models.transformer.scoring import (
    Batch,
    Row,
    causal_batch,
    encoder_decoder_batch,
    token_log_probs,
)
from backtalk.models.transformer.stepping import Stepper, Task, filled
from backtalk.models.transformer.weights import Searched, Weights
from backtalk.specs.model import ModelOptions
from backtalk.terminal import note
from backtalk.types import Access, Dialogue


class Prompts(Protocol):
    """How text becomes tokens: by a chat template, turn by turn, or for an encoder."""

    end: int
    """The end-of-turn token."""
    stops: frozenset[int]
    """Tokens at which a reply is over."""
    lead: tuple[int, ...]
    """What a decoder is given before the reply; nothing for a causal model, which goes on from the prompt."""

    def prompt_ids(self, dialogue: Dialogue) -> list[int]: ...

    def first_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """`prompt_ids` of dialogues of one utterance, all at once."""

    def fixed(self, ids: Sequence[int]) -> tuple[int, int]: ...

    def reply_ids(self, text: str) -> list[int]: ...

    def text_ids(self, text: str) -> tuple[list[int], list[int]]: ...


@dataclass
class TransformerModel(Weights):
    """A network with its tokenizer and its way of writing prompts."""

    name: str
    network: Any
    tokenizer: Any
    prompts: Prompts
    fingerprint: str
    options: ModelOptions = field(default_factory=ModelOptions)
    context: int | None = None
    """The most tokens that fit: of prompt and reply, or of an encoder's prompt; None: no limit."""
    access: Access = Access.WEIGHTS
    judge: TransformerModel | None = None
    """Says how likely a trigger is; None: the model itself, where it is causal."""
    tally: Tally = field(default_factory=Tally)
    """Tokens read while searching, with those of its draft."""
    _warned: bool = False
    _stepper: Stepper | None = None
    _searched: Searched | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.network.device
        return device

    @property
    def filler(self) -> int:
        """Any id does, for padding is masked; the end of turn would look like padding on the wrong side."""
        own = self.tokenizer.pad_token_id
        return int(own) if own not in (None, self.prompts.end) else int(self.prompts.end == 0)

    @property
    def is_encoder_decoder(self) -> bool:
        return bool(self.network.config.is_encoder_decoder)

    @property
    def footprint(self) -> Footprint:
        return footprint(self.network.config, self.network.dtype.itemsize)

    # --- text ----------------------------------------------------------------------------------------

    def prompt_ids(self, dialogue: Dialogue) -> list[int]:
        """Template, system prompt and what announces a reply applied; of a long dialogue the newest part."""
        return self._prompt(dialogue, self.options.max_reply)

    def reply_ids(self, text: str) -> list[int]:
        """The tokens of a reply with its end of turn."""
        return self.prompts.reply_ids(text)

    def read(self, ids: Sequence[int]) -> str:
        """The text of a reply's tokens."""
        text: str = self.tokenizer.decode(
            list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text.strip()

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return self._write(dialogues, None)

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        if len(dialogues) != len(seeds):
            raise InputError(f"{len(dialogues)} dialogues but {len(seeds)} seeds; give one seed for each")
        return self._write(dialogues, seeds)

    def tokens(self, reply: str) -> list[str]:
        """The pieces of a reply, without its end of turn."""
        return [str(self.tokenizer.decode([token])).strip() for token in self.reply_ids(reply)[:-1]]

    @property
    def at_once(self) -> int:
        """Questions that it answers in some ten seconds, about: what a kill may lose."""
        return 32 if self.device.type == "cpu" else 512

    @property
    def read_as(self) -> dict[str, str]:
        """What the options came to."""
        usual = "chat" if getattr(self.tokenizer, "chat_template", None) else "plain"
        return {
            "template": self.options.template if self.options.template != "auto" else usual,
            "system": self.options.system,
            "dtype": str(self.network.dtype).removeprefix("torch."),
        }

    def adjusted(self, system: str | None = None, max_reply: int | None = None) -> TransformerModel:
        """The same weights, read with another system prompt and with replies that are no longer."""
        from backtalk.models.transformer.loading import make_prompts  # it builds models of this class

        options = self.options if system is None else replace(self.options, system=system)
        prompts = self.prompts
        if options.system != self.options.system:
            prompts = make_prompts(self.name, self.network, self.tokenizer, options)
        if max_reply is not None:
            options = replace(options, max_reply=min(max_reply, options.max_reply))
        mark = f"{self.fingerprint}/{options.system}/{options.max_reply}"
        return replace(self, prompts=prompts, options=options, fingerprint=mark)

    # --- log-probabilities ---------------------------------------------------------------------------

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        if len(dialogues) != len(replies):
            raise InputError(
                f"{len(dialogues)} dialogues but {len(replies)} replies; give one reply for each"
            )
        return self.score_rows([self.row(*pair) for pair in zip(dialogues, replies, strict=True)])

    def row(self, dialogue: Dialogue, reply: str, most: int | None = None) -> Row:
        """A prompt that leaves room for the reply, and the reply's tokens, at most so many."""
        tokens = self.reply_ids(reply)[:most]
        return Row(self._prompt(dialogue, max(self.options.max_reply, len(tokens))), tokens)

    @property
    def scores_text(self) -> bool:
        """Whether `text_log_prob` has an answer."""
        return not self.is_encoder_decoder

    def text_log_prob(self, texts: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each text, as a user would type it; what does not fit is left
        out at the end."""
        rows = [Row(*self.prompts.text_ids(text)) for text in texts]
        if self.context is not None:
            rows = [Row(row.prompt, row.reply[: self.context - len(row.prompt)]) for row in rows]
        found = iter(self.score_rows([row for row in rows if row.reply]))
        return [next(found) if row.reply else [] for row in rows]

    def score_rows(self, rows: Sequence[Row], masked: bool = True) -> list[list[float]]:
        """The log-probability of each reply token of each row. Without a mask attention is quicker: a causal
        network can't see the padding, which stands behind."""
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
            lambda count, length: need.scoring(count, length, min(longest, length)),
            score,
            self.device,
            worth=PASS_TOKENS,
        )

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows as tensors, for `token_logits` and `token_log_probs`."""
        if self.is_encoder_decoder:
            return encoder_decoder_batch(rows, self.prompts.lead, self.filler, self.device)
        return causal_batch(rows, self.filler, self.device)

    def continued(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], manner: SamplingConfig
    ) -> list[list[int]]:
        """The tokens that each text of tokens is continued with; a row depends on its own seed alone."""
        special = {*self.tokenizer.all_special_ids} - self.prompts.stops
        need = self.footprint
        if self._stepper is None or self._stepper.network is not self.network:
            self._stepper = Stepper(self.network)
        stepper = self._stepper

        def go_on(numbers: list[int]) -> list[list[int]]:
            own = [seeds[number] for number in numbers]
            given = [prompts[number] for number in numbers]
            task = Task(given, own, manner, self.prompts.stops, special, self.filler)
            return continue_texts(self.network, stepper, task)

        return run_batches(
            [filled(len(prompt), self.device) for prompt in prompts],
            lambda count, length: need.writing(count, length, manner.most),
            go_on,
            self.device,
            WRITTEN_TOKENS,
        )

    @property
    def written_by(self) -> str:
        """How texts are continued, as far as it has been tried."""
        stepper = self._stepper
        if stepper is None or stepper.trusted is None:
            return "not tried yet"
        captured = ", as CUDA graphs" * (self.device.type == "cuda")
        return f"in steps of our own{captured}" if stepper.trusted else f"by the library ({stepper.why})"

    def forget_steps(self) -> None:
        """Where modules of the network were replaced: what was captured of them is gone."""
        self._stepper = None

    # --- inside --------------------------------------------------------------------------------------

    def _write(self, dialogues: Sequence[Dialogue], seeds: Sequence[int] | None) -> list[str]:
        prompts = [self.prompt_ids(dialogue) for dialogue in dialogues]
        need, most = self.footprint, self.options.max_reply

        def answer(numbers: list[int]) -> list[list[int]]:
            own = None if seeds is None else [seeds[number] for number in numbers]
            given = [prompts[number] for number in numbers]
            return write(self.network, given, self.prompts.lead, self.prompts.stops, self.filler, most, own)

        written = run_batches(
            [len(prompt) for prompt in prompts],
            lambda count, length: need.writing(count, length, most),
            answer,
            self.device,
        )
        return [self.read(ids) for ids in written]

    def _prompt(self, dialogue: Dialogue, reply_tokens: int) -> list[int]:
        if not dialogue:
            raise InputError("a dialogue has no turns; give at least one utterance to reply to")
        ids = self.prompts.prompt_ids(self._framed(dialogue))
        if self.context is None:
            return ids
        room = self.context if self.is_encoder_decoder else self.context - reply_tokens
        if self.context <= reply_tokens:
            raise InputError(
                f"a reply of {reply_tokens} tokens does not fit {self.name}, which holds {self.context} "
                "tokens with the prompt; use a smaller --max-reply"
            )
        return self._cut(ids, room)

    def _framed(self, dialogue: Dialogue) -> Dialogue:
        """With the fixed text around the last utterance."""
        *earlier, last = dialogue
        return (*earlier, last._replace(text=f"{self.options.prefix}{last.text}{self.options.suffix}"))

    def _cut(self, ids: list[int], room: int) -> list[int]:
        if len(ids) <= room:
            return ids
        if not self._warned:
            self._warned = True
            note(f"{self.name} holds {self.context} tokens: the oldest part of longer prompts is cut")
        first, last = self.prompts.fixed(ids)
        return ids[:first] + ids[len(ids) - max(room - first, last) :]
