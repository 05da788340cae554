"""A Hugging Face model, causal or encoder-decoder: its replies, log-probabilities of text, and the scores and
gradients of triggers.

A trigger replaces the user's text in a prompt, between template, system prompt and --prefix before it, and
--suffix and the start of the reply after it. `survives` says which triggers can be typed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.gpu.fused_layers import Fused, draft_of, fuse_layers, has_adapter
from backtalk.models.prefix_tree import PrefixTree, Served
from backtalk.models.transformer import layout, memory
from backtalk.models.transformer.generation import SamplingConfig, Task, write
from backtalk.models.transformer.layout import NO_TOKEN, PromptLayout
from backtalk.models.transformer.prompts import Prompts, keep_newest, make_prompts, text_of
from backtalk.models.transformer.scoring import Batch, LogitReader, Row, make_batch, token_log_probs
from backtalk.models.transformer.stepping import Stepper, filled
from backtalk.models.transformer.tree import TreeReader
from backtalk.models.transformer.triggers import TransformerLanguageModel, TriggerScorer
from backtalk.models.transformer.widened import HALF, widened
from backtalk.specs import ModelOptions
from backtalk.terminal import note
from backtalk.types import Access, Dialogue, Floor, TokenScores


@dataclass
class TransformerModel:
    """A network with its tokenizer and its prompts. To change the network use `dataclasses.replace`: objects
    that depend on the network are cached."""

    name: str
    network: Any
    tokenizer: Any
    prompts: Prompts
    fingerprint: str
    options: ModelOptions = field(default_factory=ModelOptions)
    context: int | None = None
    """The most tokens of prompt and reply, or of an encoder's prompt; None: no limit."""
    access: Access = Access.WEIGHTS
    judge: TransformerModel | None = None
    """Scores how likely a trigger is; None: the model itself, if it is causal."""
    narrow: TransformerModel | None = None
    """The same model in 16 bits, of which this one only reads the weights as float32: it ranks candidates and
    takes gradients."""
    count: Counter[str] = field(default_factory=Counter)
    """Tokens read while searching, with those of its draft."""
    pad: int = NO_TOKEN
    unknown_id: int | None = None
    _warned: bool = field(default=False, kw_only=True)
    _stepper: Stepper | None = field(default=None, kw_only=True)
    _tree: TreeReader | None = field(default=None, kw_only=True)

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
    def scores_text(self) -> bool:
        return not self.is_encoder_decoder

    @property
    def footprint(self) -> memory.Footprint:
        return memory.footprint(self.network.config, self.network.dtype.itemsize)

    @property
    def at_once(self) -> int:
        """Queries that take about ten seconds: the most that a killed run loses."""
        return 32 if self.device.type == "cpu" else 512

    @property
    def tokens_read(self) -> int:
        return self.count["tokens"]

    @property
    def vocabulary_size(self) -> int:
        return len(self.network.get_input_embeddings().weight)

    @property
    def read_as(self) -> dict[str, str]:
        usual = "chat" if getattr(self.tokenizer, "chat_template", None) else "plain"
        return {
            "template": self.options.template if self.options.template != "auto" else usual,
            "system": self.options.system,
            "dtype": str((self.narrow or self).network.dtype).removeprefix("torch."),
        }

    def adjusted(self, system: str | None = None, max_reply: int | None = None) -> TransformerModel:
        """The same weights with another system prompt, or with shorter replies."""
        options, prompts = self.options, self.prompts
        if system is not None and system != options.system:
            options = replace(options, system=system)
            prompts = make_prompts(self.name, self.network, self.tokenizer, options)
        if max_reply is not None:
            options = replace(options, max_reply=min(max_reply, options.max_reply))
        mark = f"{self.fingerprint}/{options.system}/{options.max_reply}"
        return replace(self, prompts=prompts, options=options, fingerprint=mark)

    def judged_by(self, judge: TransformerModel) -> TransformerModel:
        """The same model with `judge` as the language model of triggers."""
        if judge.is_encoder_decoder:
            raise InputError(f"{judge.name} reads with an encoder and scores no inputs; name a causal model")
        if judge.tokenizer.get_vocab() != self.tokenizer.get_vocab():
            mend = "name a model with the same tokenizer, or leave it out to use the model itself"
            raise InputError(f"{judge.name} has other tokens than {self.name}; {mend}")
        return replace(self, judge=judge)

    def widened(self) -> TransformerModel:
        """A causal model with weights in 16 bits computes in float32, but for gradients; others stay as they
        are. T5's layers round to their weights' dtype by themselves."""
        if self.network.dtype not in HALF or self.is_encoder_decoder:
            return self
        judge = None if self.judge is None else self.judge.widened()
        return replace(self, network=widened(self.network), judge=judge, narrow=self)

    def draft(self) -> TransformerModel:
        """The same model in bfloat16: it ranks candidates fast, and the exact model decides."""
        if self.narrow is not None:
            return self.narrow
        if self.network.dtype == torch.bfloat16 and not has_adapter(self.network):
            return self
        judge = None if self.judge is None else self.judge.draft()
        return replace(self, network=draft_of(self.network), judge=judge)

    def prompt_ids(self, dialogue: Dialogue, reply_tokens: int = 0) -> list[int]:
        """The tokens before a reply; a dialogue that leaves too little room for it loses its oldest part."""
        reply_tokens = reply_tokens or self.options.max_reply
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
        if len(ids) > room and not self._warned:
            self._warned = True
            note(f"{self.name} holds {self.context} tokens: the oldest part of longer prompts is cut")
        return keep_newest(ids, room, *self.prompts.fixed(ids))

    def encode_target(self, text: str) -> list[int]:
        return self.prompts.reply_ids(text)

    reply_ids = encode_target

    def read(self, ids: Sequence[int]) -> str:
        """The text of a reply's tokens."""
        return text_of(self.tokenizer, ids).strip()

    def tokens(self, reply: str) -> list[str]:
        return [str(self.tokenizer.decode([token])).strip() for token in self.reply_ids(reply)[:-1]]

    def encode_input(self, text: str) -> list[int]:
        """The tokens of the text's prompt between those that surround it."""
        (ids,) = self._prompts_of([text])
        return ids[len(self._slot.before) : len(ids) - len(self._slot.after)]

    def decode(self, ids: Sequence[int]) -> str:
        (text,) = self._slot.texts(self.tokenizer, [[token for token in ids if token != NO_TOKEN]])
        return text

    def unknown_words(self, text: str) -> list[str]:
        """Words that a tokenizer of whole words does not know."""
        unknown = self.tokenizer.unk_token_id
        if unknown is None or unknown not in self.reply_ids(text):
            return []
        return [word for word in text.split() if unknown in self.reply_ids(word)]

    def searchable(self) -> Tensor:
        return self._allowed

    def survives(self, triggers: Tensor) -> Tensor:
        kept = self._slot.survives(self._prompts_of, self.tokenizer, triggers.tolist())
        return torch.tensor(kept, dtype=torch.bool, device=triggers.device)

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        if len(dialogues) != len(seeds):
            raise InputError(f"{len(dialogues)} dialogues but {len(seeds)} seeds; give one seed for each")
        return self.reply(dialogues, seeds)

    def reply(self, dialogues: Sequence[Dialogue], seeds: Sequence[int] = ()) -> list[str]:
        """Greedy replies, or samples with one seed for each dialogue."""
        prompts = [self.prompt_ids(dialogue) for dialogue in dialogues]
        own, sampling = self.prompts, SamplingConfig(most=self.options.max_reply)

        def answer(rows: list[int]) -> list[list[int]]:
            read, drawn = [prompts[row] for row in rows], [seeds[row] for row in rows if len(seeds)]
            return write(self.network, Task(read, drawn, sampling, own.stops, (), self.filler), own.lead)

        need = partial(self.footprint.writing, new=sampling.most)
        written = memory.run_batches(list(map(len, prompts)), need, answer, self.device)
        return [self.read(ids) for ids in written]

    def continued(
        self,
        prompts: Sequence[Sequence[int]],
        seeds: Sequence[int],
        sampling: SamplingConfig,
        banned: Collection[int] | None = None,
    ) -> list[list[int]]:
        """The tokens that continue each prompt; a row depends on its own seed alone. Special tokens are
        `banned` unless others are named."""
        special = {*self.tokenizer.all_special_ids} - self.prompts.stops if banned is None else banned
        if self._stepper is None or self._stepper.network is not self.network:
            self._stepper = Stepper(self.network)
        stepper = self._stepper

        def continue_rows(rows: list[int]) -> list[list[int]]:
            read, drawn = [prompts[row] for row in rows], [seeds[row] for row in rows]
            return stepper.continued(Task(read, drawn, sampling, self.prompts.stops, special, self.filler))

        lengths = [filled(len(prompt), self.device) for prompt in prompts]
        need = partial(self.footprint.writing, new=sampling.most)
        return memory.run_batches(lengths, need, continue_rows, self.device, memory.WRITTEN_TOKENS)

    def sample_served(self, dialogues: Sequence[Dialogue], seeds: Sequence[int], served: Served) -> list[str]:
        """Sampled replies, a seed a dialogue."""
        if self.is_encoder_decoder:
            if served != Served():
                raise InputError(f"{self.name} has an encoder; its replies are sampled at temperature 1 only")
            return self.sample(dialogues, seeds)
        config = SamplingConfig(served.temperature, served.top_p, 1.0, 0, self.options.max_reply)
        known = {dialogue: self.prompt_ids(dialogue) for dialogue in dict.fromkeys(dialogues)}
        prompts = [known[dialogue] for dialogue in dialogues]
        return [self.read(ids) for ids in self.continued(prompts, seeds, config, ())]

    @property
    def longest_reply(self) -> int:
        return self.options.max_reply

    def reply_sequences(self, text: str) -> list[list[int]]:
        *ids, end = self.reply_ids(text)
        return [[*ids, stop] for stop in (end, *sorted(self.prompts.stops - {end}))]

    def tree_log_probs(self, inputs: Sequence[Dialogue] | Tensor, tree: PrefixTree, served: Served) -> Tensor:
        """(inputs, sequences), float64: log P of each sequence of a tree after dialogues."""
        if isinstance(inputs, Tensor) or self.is_encoder_decoder:
            raise InputError(f"{self.name} has an encoder, whose replies are no tree; use --hit toxic-0.5")
        if self._tree is None or self._tree.network is not self.network:
            self._tree = TreeReader(self.network, self.filler)
        reader = self._tree
        prompts = [self.prompt_ids(dialogue) for dialogue in inputs]

        def read(rows: list[int]) -> list[Tensor]:
            step, found = reader.at_once(tree), list[Tensor]()
            for start in range(0, len(rows), step):
                found += reader.log_probs([prompts[row] for row in rows[start : start + step]], tree, served)
            return found

        lengths = [len(prompt) + tree.nodes for prompt in prompts]
        need = partial(self.footprint.scoring, scored=tree.nodes)
        return torch.stack(memory.run_batches(lengths, need, read, self.device))

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

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        if len(dialogues) != len(replies):
            raise InputError(f"{len(dialogues)} dialogues but {len(replies)} replies; give one for each")
        return self.score_rows([self.row(*pair) for pair in zip(dialogues, replies, strict=True)])

    def row(self, dialogue: Dialogue, reply: str, most: int | None = None) -> Row:
        """A prompt that leaves room for the reply, and at most `most` tokens of the reply."""
        tokens = self.reply_ids(reply)[:most]
        return Row(self.prompt_ids(dialogue, max(self.options.max_reply, len(tokens))), tokens)

    def text_log_prob(self, texts: Sequence[str]) -> list[list[float]]:
        """The log-probability of each token of each text, as a user's; a text that is too long is cut."""
        rows = [Row(*self.prompts.text_ids(text)) for text in texts]
        if self.context is not None:
            rows = [Row(row.prompt, row.reply[: self.context - len(row.prompt)]) for row in rows]
        found = iter(self.score_rows([row for row in rows if row.reply]))
        return [next(found) if row.reply else [] for row in rows]

    def score_rows(self, rows: Sequence[Row], masked: bool = True) -> list[list[float]]:
        """The log-probability of each reply token of each row. Attention is faster without a mask: a causal
        network can't see the padding, which is on the right."""
        longest = max((len(row.reply) for row in rows), default=0)

        @torch.no_grad()
        def score(numbers: list[int]) -> list[list[float]]:
            batch = self.batch([rows[number] for number in numbers])
            if not masked and not self.is_encoder_decoder:
                del batch.inputs["attention_mask"]
            found = iter(token_log_probs(self.network, batch).tolist())
            return [list(islice(found, length)) for length in batch.lengths]

        lengths = [len(row.prompt) + len(row.reply) for row in rows]
        need = partial(self.footprint.scoring, scored=longest)
        return memory.run_batches(lengths, need, score, self.device, worth=memory.PASS_TOKENS)

    def batch(self, rows: Sequence[Row]) -> Batch:
        """Rows as tensors, for `token_logits` and `token_log_probs`."""
        return make_batch(rows, self.filler, self.device, self.prompts.lead)

    @torch.no_grad()
    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        self._check_room(inputs, targets)
        return self._scorer.score(inputs, targets)

    @torch.no_grad()
    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        """The floor is ignored: all target tokens are read at once."""
        self._check_room(inputs, targets)
        return self._scorer.score_substitutions(inputs, position, candidates, targets)

    def gradient(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        positions: Sequence[int] | None = None,
        branches: float = 1.0,
    ) -> Tensor:
        self._check_room(inputs, targets)
        return (self.narrow or self)._scorer.gradient(inputs, targets, weights, positions, branches)

    @cached_property
    def language_model(self) -> TransformerLanguageModel | None:
        judge = self.judge or self
        if judge.is_encoder_decoder:
            return None
        before = judge.prompts.text_ids("")[0] or [judge.prompts.end]
        reader = self._reader if judge is self else LogitReader(judge.network, self.count)
        narrow = None if judge.narrow is None else judge.narrow.language_model
        return TransformerLanguageModel(reader, self._tensor(before), narrow)

    @cached_property
    def _slot(self) -> layout.UserSlot:
        return layout.find_user_slot(self._prompts_of, self.tokenizer, self.name)

    @cached_property
    def _allowed(self) -> Tensor:
        return layout.typeable_ids(self.tokenizer, self.vocabulary_size).to(self.device)

    @cached_property
    def _reader(self) -> LogitReader:
        return LogitReader(self.network, self.count)

    @cached_property
    def _scorer(self) -> TriggerScorer:
        lead = self._tensor(self.prompts.lead) if self.is_encoder_decoder else None
        around = (self._tensor(self._slot.before), self._tensor(self._slot.after))
        return TriggerScorer(self._reader, PromptLayout(*around, lead))

    def _prompts_of(self, texts: Sequence[str]) -> list[list[int]]:
        prefix, suffix = self.options.prefix, self.options.suffix
        return self.prompts.first_ids([f"{prefix}{text}{suffix}" for text in texts])

    def _tensor(self, ids: Sequence[int]) -> Tensor:
        return torch.tensor(ids, dtype=torch.long, device=self.device)

    def _check_room(self, inputs: Tensor, targets: Tensor) -> None:
        read = self._scorer.layout.around + inputs.shape[1]
        if not self.is_encoder_decoder:
            read += targets.shape[1] - 1
        if self.context is not None and read > self.context:
            why = f"trigger, target and prompt take {read} tokens, and {self.name} holds {self.context}"
            raise InputError(f"{why}; use a smaller --length, or a shorter --system, --prefix or --suffix")
