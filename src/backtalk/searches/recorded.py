"""Replays the positions of a search as CUDA graphs, for few rows on a GPU.

A position is two to three thousand small kernels. For a hundred targets a processor takes several times as
long to launch them as the GPU to run them (docs/notes). A recording is a graph of `Trial.improve` on rows
that stay in the same memory, so rows that are done stay as well. It holds for one search: other targets have
other shapes. Recording takes as long as launching once, and saves the launches of the later sweeps. Where a
graph can't be captured, or finds other words than the plain way, the search continues without it.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from backtalk.models.gpu.graph import Graphs, first_line, limit
from backtalk.searches.trial import Incumbents, Slack, Trial

Work = Callable[[], object]
MOST_FAILURES = 3
"""Failures in a row after which recording stops. A failure may be a kernel that was not compiled for the
lengths of these targets; running it without a graph compiles it."""
MOST_CANDIDATES = 20_000  # of all rows at a position; with more the GPU is busy without recordings
ALIKE = 0.9
"""Share of the rows whose loss must be that of the plain way. The rest may be ties: candidates are ranked in
bfloat16."""


class Recorder:
    """Captures CUDA graphs for many searches, one after the other. The graphs share one memory pool."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.graphs = device, Graphs()
        self.seen: set[tuple[int, int, int]] = set()
        """Rows, candidates and position of what has run plainly: its kernels are compiled."""
        self.trusted = False  # whether a recording was checked against the plain way
        self.failures = 0  # in a row
        self.off = ""  # why nothing is recorded any more; empty while it is

    def plain(self, work: Work) -> None:
        with torch.cuda.device(self.device), self.graphs.side_stream():
            work()

    def record(self, work: Work) -> Work:
        """A function that does the work on the same memory whenever it is called; not done here."""
        try:
            with torch.cuda.device(self.device):
                return self.graphs.capture_quickly(work)
        finally:
            self.off = self.off or self.graphs.broken


class RecordedTrial:
    """`Trial.improve` for `rows`, which are changed in place, in the same memory."""

    def __init__(self, trial: Trial, rows: Incumbents, recorder: Recorder) -> None:
        self.trial, self.rows, self.recorder = trial, rows, recorder
        self.replays: dict[int, Work] = {}
        self.begun = False

    def improve(self, rows: Incumbents, position: int, _: Slack = 0.0) -> None:
        """Without slack: a search that anneals is not recorded."""
        assert rows is self.rows, "a recording reads one place in memory"
        replay = self.replays.get(position) or self._recording(position)
        if replay is not None:
            replay()
            return
        if self.recorder.off:
            self._in_place(position)
        else:
            self.recorder.plain(lambda: self._in_place(position))
        self.recorder.seen.add(self._shape(position))
        self.begun = True

    def _recording(self, position: int) -> Work | None:
        """None if it has not run plainly yet, or can't be recorded. The first position of a search is always
        run plainly first: the network reads the lengths of its targets back there."""
        recorder = self.recorder
        if recorder.off or not self.begun or self._shape(position) not in recorder.seen:
            return None
        try:
            replay = recorder.record(lambda: self._in_place(position))
            if not recorder.trusted:
                self._check(replay, position)
        except RuntimeError as error:
            recorder.failures += 1
            if recorder.failures >= MOST_FAILURES:
                recorder.off = recorder.off or first_line(error)
            return None
        if recorder.off:
            return None
        recorder.failures = 0
        self.replays[position] = replay
        return replay

    def _check(self, replay: Work, position: int) -> None:
        """Improves the rows twice, plainly and by the recording, and restores them."""
        before = self._copies()
        self.recorder.plain(lambda: self._in_place(position))
        plain = self.rows.loss.clone()
        self._put(before)
        replay()
        near = (self.rows.loss - plain).abs() <= limit("log-probability", torch.float32)
        self._put(before)
        if near.float().mean() < ALIKE:
            self.recorder.off = "it finds other words than the plain way"
        self.recorder.trusted = True

    def _in_place(self, position: int) -> None:
        rows = replace(self.rows)
        self.trial.improve(rows, position)
        self._put(rows.parts())

    def _copies(self) -> list[Tensor | None]:
        """Of all but the targets: after a write to them a network would read their lengths back again."""
        same = self.rows.targets
        return [part if part is None or part is same else part.clone() for part in self.rows.parts()]

    def _put(self, new: list[Tensor | None]) -> None:
        for part, value in zip(self.rows.parts(), new, strict=True):
            if part is not None and value is not None and value is not part:
                part.copy_(value)

    def _shape(self, position: int) -> tuple[int, int, int]:
        return len(self.rows.inputs), self.trial.top, position
