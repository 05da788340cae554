"""What has to run before it is captured as a CUDA graph: libraries set themselves up in the first passes."""

from __future__ import annotations

from collections.abc import Callable

import torch


def warm_up(work: Callable[[], object], times: int) -> None:
    """Does `work` so often on a stream of its own, between what is queued now and what comes after."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream().wait_stream(side)
