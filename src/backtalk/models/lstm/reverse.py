"""The Reverse Dialogue Generator of Liu et al. 2019 reads a target reply and writes an input to provoke it.

It is a seq2seq of ours that was trained backwards: its `max_input` bounds targets, its `max_output` the
inputs that it writes. Its policy, eq. (1), writes no special token and no empty sentence, so the sentences
that are sampled, scored and sent to the black box are the same.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from backtalk import __version__
from backtalk.data.vocabulary import BOS, EOS, PAD, UNK
from backtalk.errors import InputError
from backtalk.models.folder import load_folder, save_model, write_card
from backtalk.models.lstm.decode import Sampling, beam, sample
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import DecoderState, Seq2Seq
from backtalk.models.lstm.softmax import chunk_rows

KIND = "reverse"
TEMPERATURE = 0.6
"""Of crafted samples. The best of 20 is nearer to the target than at 1, and the sentences read better."""
SAMPLE_ROUNDS = 4  # attempts to draw enough distinct samples


class InputPolicy:
    """pi(I | O*), eq. (1), over sentences of at least one word."""

    def __init__(self, network: Seq2Seq) -> None:
        self.network = network
        self.never = torch.zeros(network.config.vocabulary, device=network.output.weight.device)
        self.never[[PAD, BOS, UNK]] = -torch.inf
        self.never_first = self.never.clone()
        self.never_first[EOS] = -torch.inf

    def next(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """As the network's, with impossible words at -inf; every sentence begins after <bos>."""
        logits, state = self.network.next(words, state)
        return logits + torch.where((words == BOS)[:, None], self.never_first, self.never), state

    def log_prob(self, targets: Tensor, inputs: Tensor) -> Tensor:
        """(batch,): log pi(I | O*) of padded `inputs` (batch, m) given targets (batch, n); differentiable."""
        logits = self.network.logits(self.network.start(targets), inputs)
        never = self.never.expand(inputs.shape[1], -1).clone()  # (m, V)
        never[0] = self.never_first
        # Padding has -inf, which would spoil the gradient: another word replaces it and is left out.
        real = inputs != PAD
        words = torch.where(real, inputs, EOS)[:, :, None]
        return torch.where(real, (logits + never).log_softmax(2).gather(2, words).squeeze(2), 0.0).sum(1)


@torch.no_grad()
def craft(
    generator: LocalModel,
    targets: Sequence[str],
    n: int = 1,
    decode: Literal["beam", "sample"] = "beam",
    seeds: Sequence[int] | None = None,
) -> list[list[str]]:
    """At most n distinct inputs for each target, the likeliest first. A beam of one is greedy decoding; the
    sentences of a wider beam are similar. The samples of a target depend only on its seed."""
    own = list(range(len(targets)) if seeds is None else seeds)
    longest, policy = generator.max_output, InputPolicy(generator.network)
    step = max(1, chunk_rows(len(generator.vocabulary), generator.device) // n)  # whose logits fit the cache
    found: list[list[str]] = []
    for start in range(0, len(targets), step):
        part = generator.encode_texts(targets[start : start + step])
        if decode == "sample":
            found += _sampled(generator, part, n, own[start : start + step])
        else:
            beams = beam(policy, policy.network.start(part), len(part), longest, n, generator.device)
            found += [list(dict.fromkeys(generator.decode(one.ids) for one in row)) for row in beams]
    return found


def _sampled(generator: LocalModel, targets: Tensor, n: int, seeds: Sequence[int]) -> list[list[str]]:
    policy, longest, sampling = InputPolicy(generator.network), generator.max_output, Sampling(TEMPERATURE)
    # log_prob makes logits at all positions.
    few = max(1, chunk_rows(len(generator.vocabulary), generator.device) // longest)
    found: list[dict[str, float]] = [{} for _ in targets]
    for turn in range(SAMPLE_ROUNDS):
        # Later rounds draw for the rows that got a sentence twice, some more than they lack.
        counts = [n if turn == 0 else min(n, 2 * (n - len(own))) for own in found]
        owners = [row for row, count in enumerate(counts) for _ in range(count)]
        if not owners:
            break
        inputs = targets[torch.tensor(owners, device=targets.device)]
        draws = [draw_seed(seeds[row], turn, k) for row, count in enumerate(counts) for k in range(count)]
        written = sample(policy, policy.network.start(inputs), draws, longest, targets.device, sampling)
        parts = zip(torch.split(inputs, few), torch.split(written, few), strict=True)
        chances = torch.cat([policy.log_prob(*part) for part in parts]).tolist()
        for row, ids, chance in zip(owners, written.tolist(), chances, strict=True):
            text = generator.decode(ids)
            if len(found[row]) < n or text in found[row]:
                found[row][text] = chance
    return [sorted(own, key=lambda text: (-own[text], text)) for own in found]


def draw_seed(*numbers: int) -> int:
    """One seed from several numbers, none of them negative."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def save_generator(generator: LocalModel, folder: Path, facts: dict[str, Any]) -> None:
    """Writes the model folder, the card last."""
    generator.fingerprint = save_model(folder, generator)
    write_card(folder, {"kind": KIND, "backtalk": __version__, "sha256": generator.fingerprint, **facts})


def load_generator(folder: Path | str, device: str = "auto") -> LocalModel:
    model = load_folder(str(folder), device)
    if model.card.get("kind") != KIND:
        raise InputError(f"{folder} holds no reverse generator; name a run of --search reverse")
    return model
