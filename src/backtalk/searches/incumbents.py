"""What a search holds for each row: the best trigger so far with its scores, losses by sweep, its cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from backtalk.protocols import CountsTokens, WeightsModel
from backtalk.types import Found


@dataclass
class Incumbents:
    """The incumbent of each row and its scores."""

    inputs: Tensor  # (rows, n)
    targets: Tensor  # (rows, m)
    log_probs: Tensor  # (rows, m)
    flags: Tensor
    input_log_probs: Tensor | None  # (rows, n)
    output_loss: Tensor  # (rows,)
    loss: Tensor
    done: Tensor
    candidates: Tensor

    def select(self, rows: Tensor) -> Incumbents:
        return Incumbents(*(None if part is None else part[rows] for part in self.parts()))  # type: ignore[arg-type]

    def put(self, rows: Tensor, batch: Incumbents) -> None:
        """Takes over what `select(rows)` has become."""
        for part, new in zip(self.parts(), batch.parts(), strict=True):
            if part is not None and new is not None:
                part[rows] = new

    def become(self, others: Incumbents, where: Tensor) -> None:
        """Takes over the others' rows `where` (rows,) says so; what was counted stays."""
        for field, part, new in zip(fields(self), self.parts(), others.parts(), strict=True):
            if part is not None and new is not None and field.name not in ("done", "candidates"):
                setattr(self, field.name, torch.where(where.view(-1, *[1] * (part.dim() - 1)), new, part))

    def parts(self) -> list[Tensor | None]:
        return [getattr(self, field.name) for field in fields(self)]


class History:
    """Losses by sweep, kept on the device until the end."""

    def __init__(self, rows: Incumbents) -> None:
        self.total, self.output = [rows.loss.clone()], [rows.output_loss.clone()]
        self.running = [~rows.done]  # before the first sweep, before the second ...

    def note(self, rows: Incumbents) -> None:
        self.total.append(rows.loss.clone())
        self.output.append(rows.output_loss.clone())
        self.running.append(~rows.done)

    def by_row(self) -> list[tuple[list[float], list[float]]]:
        """For each row the start and every sweep that it took part in: whole loss, output part."""
        swept = 1 + torch.stack(self.running[:-1] or [torch.zeros_like(self.running[0])]).sum(0)
        total, output = torch.stack(self.total, 1).tolist(), torch.stack(self.output, 1).tolist()
        return [(whole[:n], part[:n]) for whole, part, n in zip(total, output, swept.tolist(), strict=True)]

    def found(self, rows: Incumbents, scores: Mapping[str, float]) -> list[Found]:
        """What the search ends with, one a row."""
        ends = zip(
            rows.inputs.tolist(), rows.loss.tolist(), rows.candidates.tolist(), self.by_row(), strict=True
        )
        return [
            Found(tuple(ids), loss, total, candidates, scores, series={"output_loss_by_sweep": output})
            for ids, loss, candidates, (total, output) in ends
        ]


class TokensRead:
    """What a search costs a model that counts: tokens run through its network, gradients and drafts too."""

    def __init__(self, model: WeightsModel) -> None:
        self._model = model if isinstance(model, CountsTokens) else None
        self._before = self._model.tokens_read if self._model else 0

    def share(self, rows: int) -> dict[str, float]:
        """Each row's part since then, as a search stores it."""
        if self._model is None:
            return {}
        return {"forward_tokens": (self._model.tokens_read - self._before) / rows}
