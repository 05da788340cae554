"""CUDA graphs, and the check of a fast path against the plain one.

Launching many small kernels takes the CPU longer than the GPU needs to run them. A CUDA graph is captured
once and replays them on the same memory. No other file of the package captures graphs.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor

from backtalk.models.device import is_out_of_memory

FULL = 0.02  # largest distance from the plain path in float32 and float64
HALF = {"layer": 0.03, "log-probability": 0.25, "loss": 0.2, "gradient": 0.5}
"""Largest distance in bfloat16 and float16. Loss and gradient are a whole network's: those of a tuned SmolLM2
differ by 1% and up to 32% if they are computed in other shapes (docs/notes)."""
T = TypeVar("T")


class Graphs:
    """Captures graphs that share one memory pool for their intermediate results."""

    def __init__(self) -> None:
        self.broken = ""  # why nothing can be captured any more; empty while it can
        self._first: torch.cuda.CUDAGraph | None = None  # kept, because the pool goes with its last graph
        self._stream: torch.cuda.Stream | None = None

    def capture(
        self, work: Callable[[], T], warm_up: Callable[[], object] = lambda: None, times: int = 0
    ) -> Callable[[], T]:
        """`work` as a graph: each call runs it again and returns the same tensors with new values. `warm_up`
        runs `times` times before the capture, on another stream: libraries initialise in the first run."""
        with self.side_stream():
            for _ in range(times):
                warm_up()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool()):
            found = work()
        self._first = self._first or graph

        def replay() -> T:
            graph.replay()
            return found

        return replay

    def capture_quickly(self, work: Callable[[], object]) -> Callable[[], None]:
        """The same for work that ran on the side stream before. It neither synchronizes nor frees memory, and
        kernels may be loaded meanwhile."""
        graph = torch.cuda.CUDAGraph()
        collects = gc.isenabled()
        gc.disable()  # the collector might free CUDA memory during the capture
        try:
            with self.side_stream():
                graph.capture_begin(pool=self._pool(), capture_error_mode="relaxed")
                try:
                    work()
                finally:
                    self._end(graph)
        finally:
            if collects:
                gc.enable()
        self._first = self._first or graph
        return graph.replay

    def clear(self) -> None:
        """Frees the pool once the replays are gone too."""
        self._first = None

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Work inside runs on another stream, after what is queued now and before what is queued later."""
        stream = self._stream = self._stream or torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            yield
        torch.cuda.current_stream().wait_stream(stream)

    def _pool(self) -> Any:
        return None if self._first is None else self._first.pool()

    def _end(self, graph: torch.cuda.CUDAGraph) -> None:
        try:
            graph.capture_end()
        except RuntimeError as error:
            self.broken = first_line(error)  # memory may still be allocated from the graph's pool
            raise


class FastPath:
    """A fast path, which is used after a check found that it agrees with the plain path."""

    def __init__(self, on: bool = True, tries: int = 1) -> None:
        self.on = on  # False after it failed `tries` checks or raised an error
        self.tries = tries  # remaining checks before it is given up; 0 once it is decided
        self.why = ""  # why the last check failed

    @property
    def is_trusted(self) -> bool:
        return self.on and self.tries == 0

    def check(
        self, compare: Callable[[], dict[str, float]], dtype: torch.dtype, memory_ends_it: bool = False
    ) -> bool:
        """Whether the distances that `compare` measures, by kind, are within the limits. Out-of-memory errors
        are raised, because a smaller batch may work, unless `memory_ends_it`."""
        try:
            gaps = compare()
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
            if is_out_of_memory(error) and not memory_ends_it:
                raise
            self.on, self.tries, self.why = False, 0, first_line(error)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            return False
        right = all(gap <= limit(kind, dtype) for kind, gap in gaps.items())  # False for NaN
        self.tries = 0 if right else self.tries - 1
        self.on = right or self.tries > 0
        told = (f"its {kind} is {gap:.2g} from that of the plain way" for kind, gap in gaps.items())
        self.why = "" if right else ", ".join(told)
        return right


def limit(kind: str, dtype: torch.dtype) -> float:
    """The largest distance of a fast path from the plain one."""
    return HALF[kind] if dtype in (torch.bfloat16, torch.float16) else FULL


def distance(plain: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """The norm of the difference as a share of the plain norm; infinite for other shapes or dtypes."""
    if any(a.dtype != b.dtype or a.shape != b.shape for a, b in zip(plain, found, strict=True)):
        return float("inf")
    plain, found = ([value.detach().float() for value in values] for values in (plain, found))
    gaps = [(a - b).norm() for a, b in zip(plain, found, strict=True)]
    return float(torch.stack(gaps).norm() / torch.stack([value.norm() for value in plain]).norm())


def first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
