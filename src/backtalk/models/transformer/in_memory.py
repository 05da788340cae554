"""A Hugging Face model that is in memory already: wrapped as it is, known by a hash of its weights."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from backtalk.errors import InputError
from backtalk.models.folder import refuse_broken
from backtalk.models.transformer.loading import context_of, make_prompts
from backtalk.models.transformer.model import TransformerModel
from backtalk.specs.model import ModelOptions

MEMORY = "memory:"
"""Before the name of a model that only the program that holds it can load."""


def wrap(network: Any, tokenizer: Any, options: ModelOptions | None = None) -> TransformerModel:
    """The network with its tokenizer as a model of ours. Nothing is copied."""
    options = options or ModelOptions()
    name = f"{MEMORY}{getattr(network, 'name_or_path', '') or type(network).__name__}"
    try:
        refuse_broken(network.named_parameters())
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    return TransformerModel(
        name=name,
        network=network,
        tokenizer=tokenizer,
        prompts=make_prompts(name, network, tokenizer, options),
        fingerprint=_fingerprint(network, tokenizer, options),
        options=options,
        context=context_of(network, tokenizer),
    )


@contextmanager
def evaluating(network: Any) -> Iterator[None]:
    """In evaluation mode and without gradients of the weights; afterwards as it was."""
    was, wanted = network.training, [p for p in network.parameters() if p.requires_grad]
    network.eval().requires_grad_(False)
    try:
        yield
    finally:
        network.train(was)
        for parameter in wanted:
            parameter.requires_grad_(True)


def _fingerprint(network: Any, tokenizer: Any, options: ModelOptions) -> str:
    found = hashlib.sha256(json.dumps([asdict(options), tokenizer.get_vocab()], sort_keys=True).encode())
    found.update(str(getattr(tokenizer, "chat_template", "")).encode())
    for name, value in sorted(network.state_dict().items()):
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
