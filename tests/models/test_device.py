"""What is set up for a device."""

from __future__ import annotations

import subprocess
import sys
import textwrap

BITS = """
    import torch
    from backtalk.models.device import pick_device

    pick_device("cpu")
    draw = torch.Generator().manual_seed(1)
    rows, weight, bias = (torch.randn(shape, generator=draw) for shape in ((64, 300), (600, 300), (600,)))
    before = torch.nn.functional.linear(rows, weight, bias)
    rows.bfloat16() @ weight.bfloat16().t()
    assert torch.equal(torch.nn.functional.linear(rows, weight, bias), before)
"""


def test_float32_is_the_same_before_and_after_bfloat16() -> None:
    """In a process of its own: on some processors PyTorch computes it another way from then on."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(BITS)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
