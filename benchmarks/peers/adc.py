"""Adaptive dense-to-sparse coordinates (ADC, Hu et al. 2024), as tool `adc` of the contest `flops`.

At each position a trigger is a weighted mean of all tokens, moved by SGD with a large momentum. The fewer
tokens of the target are wrong, the fewer tokens keep a weight, until one is left. `top` is the number of
starts of a target, and the gradient is that of LSGM unless `branches` is 1. Every step costs a forward and
backward pass of each start, and a forward pass of its likeliest tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backtalk.models.transformer.decoder import Decoder
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.trial import Trial
from backtalk.types import Found

KEPT = 0.9
"""Of the mean number of wrong tokens, in each step."""
LEAST = 1e-6


@dataclass(frozen=True)
class Adc(Gibbs):
    lr: float = 10.0
    momentum: float = 0.99

    def search_rows(self, trial: Trial) -> list[Found]:
        trial = self.prepared(trial, self.top)
        goals, n = trial.targets.repeat_interleave(self.top, 0), self.length
        draw = torch.Generator(trial.allowed.device).manual_seed(trial.seeds[0] % (1 << 63))
        noise = torch.randn(len(goals), n, len(trial.allowed), generator=draw, device=trial.allowed.device)
        z = noise.masked_fill_(~trial.allowed, -torch.inf).softmax(2)
        speed, wrong = torch.zeros_like(z), torch.full((len(goals),), float(goals.shape[1]), device=z.device)
        best = trial.begin(z.argmax(2), goals)
        losses = [best.loss]
        for step in range(self.sweeps * n):
            gradient, missed = soft_gradient(trial, z, goals)
            speed.mul_(self.momentum).add_(gradient)
            wrong = KEPT * wrong + (1 - KEPT) * missed
            share = torch.rand(len(goals), n, generator=draw, device=z.device)
            z = sparse(z - self.lr * speed, (wrong.exp()[:, None] + share).long(), trial.allowed)
            found = trial.score(z.argmax(2), goals)
            better = found.loss < best.loss
            best.inputs = torch.where(better[:, None], z.argmax(2), best.inputs)
            best.take(better, found)
            if step % n == n - 1:
                losses.append(best.loss)
            if trial.watch(step / (self.sweeps * n), dict, lambda: 0):
                break
        chosen = (
            best.loss.view(-1, self.top).argmin(1)
            + torch.arange(len(trial.targets), device=z.device) * self.top
        )
        history = torch.stack(losses, 1)[chosen].tolist()
        columns = (best.inputs[chosen].tolist(), best.loss[chosen].tolist(), history)
        return [
            Found(tuple(ids), loss, whole, len(whole) * n * self.top)
            for ids, loss, whole in zip(*columns, strict=True)
        ]


def soft_gradient(trial: Trial, z: Tensor, goals: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of each row's mean cross-entropy with respect to its weights z (rows, n, vocabulary), and
    how many tokens of the target are not the likeliest."""
    model: Any = trial.draft or trial.model
    if charge := getattr(trial.model, "charge", None):
        charge(len(z), z.shape[1] + goals.shape[1])
    network, reader = model.network, model._scorer.reader
    table = network.get_input_embeddings().weight.detach()
    decoder = Decoder.of(network)

    def part_of(part: slice) -> Tensor:
        read = model._scorer.layout.inputs(z[part].argmax(2), goals[part])
        weights = z[part].detach().requires_grad_()
        with torch.enable_grad():
            places = read.trigger_positions[:, :, None].expand(-1, -1, table.shape[1])
            fixed = network.get_input_embeddings()(read.inputs["input_ids"]).detach()
            inputs = {
                **read.inputs,
                "inputs_embeds": fixed.scatter(1, places, weights.to(table.dtype) @ table),
            }
            del inputs["input_ids"]
            if decoder is not None:
                inputs = {"inputs_embeds": inputs["inputs_embeds"], "decoder": decoder, "past": None}
                inputs["branches"] = trial.branches
            logs = reader.log_softmax(inputs, read.positions.flatten()).view(*goals[part].shape, -1)
            chosen = logs.gather(2, goals[part][:, :, None]).squeeze(2)
            (found,) = torch.autograd.grad(-chosen.mean(1).sum(), weights)
        missed = (logs.argmax(2) != goals[part]).sum(1).float()
        return torch.cat([found.flatten(1), missed[:, None]], 1)

    length = model._scorer.layout.around + z.shape[1] + goals.shape[1]
    need = reader.need.learning(length, goals.shape[1])
    both = reader.in_parts(len(z), length, need, part_of)
    return both[:, :-1].view_as(z), both[:, -1]


def sparse(z: Tensor, keep: Tensor, allowed: Tensor) -> Tensor:
    """z (rows, n, vocabulary) with the `keep` (rows, n) largest weights of each position, at least one, that
    sum to 1."""
    z = z.masked_fill(~allowed, -torch.inf)
    keep = keep.clamp(1, int(allowed.sum()))
    least = z.topk(int(keep.max()), dim=2).values.gather(2, keep[:, :, None] - 1)
    kept = torch.where(z >= least, z.clamp(min=0) + LEAST, 0.0)
    return kept / kept.sum(2, keepdim=True)
