"""Positions of a search that are recorded and replayed, for few rows on a GPU.

A position is two to three thousand small kernels. For a hundred targets a processor takes several times as
long to launch them as the GPU to run them (LOG.md). A recording is a CUDA graph of `Trial.improve` on rows
that stay in the same memory, so rows that are done stay as well. It holds for one search: with other targets
other shapes are computed. Recording takes as long as launching once; what it saves are the later sweeps.

Where a graph can't be made, or finds other words than the plain way, the search goes on in the plain way.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from backtalk.searches.gibbs import Trial
    from backtalk.searches.incumbents import Incumbents

Work = Callable[[], object]
MOST_FAILURES = 3
"""In a row, before nothing is recorded any more. One may be a kernel that was not compiled for the lengths of
these targets; after the plain way it is."""
MOST_CANDIDATES = 20_000
"""Tried at a position by all rows together; with more the GPU is busy without recordings."""
NEAR, ALIKE = 1e-2, 0.9
"""A recording is right if so many rows end within so many nats of where the plain way ends. The rest may be
ties: candidates are ranked in bfloat16."""


class Recorder(ABC):
    """Makes recordings, for many searches one after the other."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int, int]] = set()
        """Rows, candidates and position of what has run in the plain way: its kernels are compiled."""
        self.trusted = False
        """The first recording was as good as the plain way."""
        self.failures = 0
        """One after the other."""
        self.off = ""
        """Why nothing is recorded any more; empty while it is."""

    @abstractmethod
    def plain(self, work: Work) -> None:
        """Does the work."""

    @abstractmethod
    def record(self, work: Work) -> Work:
        """What does it whenever it is called, on the same memory. The work itself is not done here."""


class CudaRecorder(Recorder):
    """Recordings are CUDA graphs. All of them share the memory of what they compute in between."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self._stream: torch.cuda.Stream | None = None
        self._first: torch.cuda.CUDAGraph | None = None
        """Kept, for the memory goes with the last graph."""

    def plain(self, work: Work) -> None:
        with self._aside():
            work()

    def record(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        pool = None if self._first is None else self._first.pool()
        with self._aside(), _no_collection():
            # Relaxed: kernels may be loaded meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="relaxed")
            try:
                work()
            finally:
                self._end(graph)
        self._first = self._first or graph
        return graph.replay

    def _end(self, graph: torch.cuda.CUDAGraph) -> None:
        try:
            graph.capture_end()
        except RuntimeError as error:
            # Whether memory still goes to the recording's is not known: not again.
            self.off = first_line(error)
            raise

    @contextmanager
    def _aside(self) -> Iterator[None]:
        """On a stream of its own, as captures have to be; what libraries keep for a stream is there then."""
        with torch.cuda.device(self.device):
            stream = self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                yield
            torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's collector, which might free CUDA memory in the midst of a capture."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


class RecordedTrial:
    """`Trial.improve` for `rows`, which are changed in place, in the same memory."""

    def __init__(self, trial: Trial, rows: Incumbents, recorder: Recorder) -> None:
        self.trial, self.rows, self.recorder = trial, rows, recorder
        self.replays: dict[int, Work] = {}
        self.begun = False

    def improve(self, rows: Incumbents, position: int) -> None:
        assert rows is self.rows, "a recording is of one place in memory"
        replay = self.replays.get(position) or self._recording(position)
        if replay is None:
            self._plainly(position)
        else:
            replay()

    def _plainly(self, position: int) -> None:
        if self.recorder.off:
            self._in_place(position)
        else:
            self.recorder.plain(lambda: self._in_place(position))
        self.recorder.seen.add(self._shape(position))
        self.begun = True

    def _recording(self, position: int) -> Work | None:
        """None: it has not run in the plain way yet, or can't be recorded. The first position of a search is
        never recorded at once: what a network remembers of its targets is read back there."""
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
        """Goes there twice, plainly and by the recording, and comes back."""
        before = self._copies()
        self.recorder.plain(lambda: self._in_place(position))
        plain = self.rows.loss.clone()
        self._put(before)
        replay()
        near = (self.rows.loss - plain).abs() <= NEAR
        self._put(before)
        if near.float().mean() < ALIKE:
            self.recorder.off = "it finds other words than the plain way"
        self.recorder.trusted = True

    def _in_place(self, position: int) -> None:
        rows = replace(self.rows)
        self.trial.improve(rows, position)
        self._put(rows.parts())

    def _copies(self) -> list[Tensor | None]:
        """But the targets themselves: where they were written to, a network that remembers them would read
        them back."""
        same = self.rows.targets
        return [part if part is None or part is same else part.clone() for part in self.rows.parts()]

    def _put(self, new: list[Tensor | None]) -> None:
        for part, value in zip(self.rows.parts(), new, strict=True):
            if part is not None and value is not None and value is not part:
                part.copy_(value)

    def _shape(self, position: int) -> tuple[int, int, int]:
        return len(self.rows.inputs), self.trial.top, position
