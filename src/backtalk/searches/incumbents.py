"""What a search holds for each row: the best trigger so far with its scores, and its losses by sweep."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


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
        return Incumbents(*(None if part is None else part[rows] for part in self._parts()))  # type: ignore[arg-type]

    def put(self, rows: Tensor, batch: Incumbents) -> None:
        """Takes over what `select(rows)` has become."""
        for part, new in zip(self._parts(), batch._parts(), strict=True):
            if part is not None and new is not None:
                part[rows] = new

    def _parts(self) -> list[Tensor | None]:
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
