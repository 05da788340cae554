"""Looks at the clock between the steps of a search: reports progress, saves checkpoints and stops in time."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backtalk.deadline import Late, check_time

State = dict[str, Tensor]  # what a search needs to resume at the step where it was
EVERY_S = 5.0  # between two checkpoints
TELL_S = 0.2  # between two reports of progress
MOST_BYTES = 64 << 20
"""A larger state is not saved, and its block is searched again from its start. Thousands of relaxed inputs on
a GPU are that large."""


@dataclass
class Watch:
    """Called after every step of a search. By default nothing is saved, and only a time limit around the
    search (deadline.py) ends it."""

    late: Late | None = None
    save: Callable[[State], None] | None = None
    tell: Callable[[float], None] | None = None  # the share of the steps that is done
    resumed: State | None = None  # the state of an earlier attempt
    more: Callable[[], State] = dict  # what is saved beside the state of every search
    most_candidates: float = float("inf")
    most_rows: int = 0  # that are searched at once; 0: all
    reserve_s: float = 0.0  # what replies, scores and storing take after the last step
    replies_s: float = 0.0  # the replies and scores alone
    device: torch.device | None = None  # where the search runs; None: on the CPU
    stopped: str = ""  # the limit that ended the search
    _queued: torch.cuda.Event | None = None  # the end of the last step, on a GPU
    _step: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)
    _told: float = 0.0

    def __call__(self, share: float, state: Callable[[], State], tried: Callable[[], int]) -> bool:
        """Whether to stop now, with what was found so far. `tried` counts the candidates of this search."""
        if self.late is None:
            check_time()
            return False
        steps = 1
        if self.device is not None and self.device.type == "cuda":
            # This step's kernels may only be queued. Waiting for the step before keeps the GPU busy.
            if self._queued is not None:
                self._queued.synchronize()
            self._queued, steps = torch.cuda.current_stream(self.device).record_event(), 2
        now = time.monotonic()
        took, self._step = now - self._step, now
        self.stopped = self.late(self.reserve_s + steps * took)
        if not self.stopped and self.most_candidates < float("inf") and tried() >= self.most_candidates:
            self.stopped = "--max-candidates was reached"
        if self.tell is not None and now - self._told > TELL_S:
            self.tell(share)
            self._told = now
        if self.save is not None and (self.stopped or now - self._saved > EVERY_S):
            found = {
                name: part.detach().cpu().contiguous() for name, part in {**state(), **self.more()}.items()
            }
            if sum(part.nbytes for part in found.values()) <= MOST_BYTES:
                self.save(found)
            self._saved = time.monotonic()
        return bool(self.stopped)
