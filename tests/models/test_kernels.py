"""The Triton kernels against plain PyTorch, in Triton's interpreter."""

from __future__ import annotations

import json

import pytest
import torch

from backtalk.models.gpu.fused import kernels_for, only
from tests.models.interpreter import needs_triton, run_interpreted

PRELUDE = """
import torch
from backtalk.models.gpu import kernels
torch.manual_seed(0)
rows, hidden = 24, 20
gates, cell = torch.randn(rows, 4 * hidden), torch.randn(rows, hidden)
def plain(gates, cell):
    i, f, o = torch.sigmoid(gates[:, : 3 * hidden]).chunk(3, 1)
    new = f * cell + i * torch.tanh(gates[:, 3 * hidden :])
    return o * torch.tanh(new), new
def same(found, expected, tolerance=2e-6):
    for a, b in zip(found, expected, strict=True):
        assert torch.allclose(a, b, atol=tolerance, rtol=tolerance), (a - b).abs().max()
"""

CELL = """
table, added = torch.randn(6, 4 * hidden), torch.randn(rows, 4 * hidden)
same(kernels.lstm_cell(gates, cell), plain(gates, cell))
by_group = kernels.lstm_cell(gates, cell, table, per_group=4, added=added)
same(by_group, plain(gates + table.repeat_interleave(4, 0) + added, cell))
index = torch.randint(0, 6, (rows,))
same(kernels.lstm_cell(gates, cell, table, index=index), plain(gates + table[index], cell))
keep, before = torch.rand(rows) > 0.5, torch.randn(rows, hidden)
assert keep.any() and not keep.all()
held = kernels.lstm_cell(gates, cell, keep=keep, before=before)
new = plain(gates, cell)
same(held, [torch.where(keep[:, None], a, b) for a, b in zip(new, (before, cell))])
"""

CELL_GRADIENT = """
by_hidden, by_cell = torch.randn(rows, hidden), torch.randn(rows, hidden)
grads = []
for function in (kernels.LSTMCell.apply, plain):
    leaves = [gates.clone().requires_grad_(), cell.clone().requires_grad_()]
    out = function(*leaves)
    (out[0] * by_hidden + out[1] * by_cell).sum().backward()
    grads.append([leaf.grad for leaf in leaves])
same(*grads)
"""

ATTENTION = """
query, shared, own = torch.randn(rows, hidden), torch.randn(6, 3, hidden), torch.randn(rows, 2, hidden)
shared_keep, keep = torch.rand(6, 3) > 0.3, torch.rand(rows, 2) > 0.3
def reference(p, masked):
    values = torch.cat([shared[:, :p].repeat_interleave(4, 0), own], 1)
    scores = torch.einsum("rh,rjh->rj", query, values)
    if masked:
        there = torch.cat([shared_keep[:, :p].repeat_interleave(4, 0), keep], 1)
        scores = scores.masked_fill(~there, -1e30)
    return torch.einsum("rj,rjh->rh", scores.softmax(1), values)
same([kernels.attend(query, shared, own, 4)], [reference(3, False)])
same([kernels.attend(query, shared[:, :0], own, 4)], [reference(0, False)])
same([kernels.attend(query, shared, own, 4, shared_keep, keep)], [reference(3, True)])
"""

OUTPUT = """
words = 300  # not a multiple of the tile, nor is the hidden size
state, weight, bias = torch.randn(70, hidden), torch.randn(words, hidden), torch.randn(words)
half = torch.zeros(3, 24, dtype=torch.bfloat16)  # what it is for; the interpreter can't multiply such numbers
assert kernels.can_score(half) and not kernels.can_score(half[:, :20]) and not kernels.can_score(half[:0])
logits = state @ weight.t() + bias
targets = torch.randint(0, words, (70,))
targets[:20] = logits[:20].argmax(1)
found, is_argmax = kernels.output_scores(
    state, weight, bias, targets, BLOCK_M=32, BLOCK_V=64, BLOCK_K=16, BAND=2
)
same([found], [logits.log_softmax(1).gather(1, targets[:, None]).squeeze(1)], 1e-5)
assert (is_argmax == (logits.argmax(1) == targets)).all() and is_argmax[:20].all()
"""


REDUCE = """
logits = 3 * torch.randn(40, 5000)  # more than one block, and not a whole number of them
targets = torch.randint(0, 5000, (40,))
targets[:10] = logits[:10].argmax(1)
logits[5, 4990:] = -torch.inf  # words that are there to fill a row up
found, is_argmax = kernels.reduce_logits(logits, targets)
same([found], [logits.log_softmax(1).gather(1, targets[:, None]).squeeze(1)], 1e-5)
assert (is_argmax == (logits.argmax(1) == targets)).all() and is_argmax[:10].all()
"""

CHECKS = {
    "cell": CELL,
    "cell-gradient": CELL_GRADIENT,
    "attention": ATTENTION,
    "output": OUTPUT,
    "reduce": REDUCE,
}


EACH = """
import json, sys, traceback
prelude, checks = json.loads(sys.argv[1])
for name, check in checks.items():
    try:
        exec(prelude + check, {})
        said = ""
    except Exception:
        said = traceback.format_exc()
    print(json.dumps([name, said]), flush=True)
"""


@pytest.fixture(scope="module")
def failures() -> dict[str, str]:
    """What went wrong in each check, nothing where all is well."""
    done = run_interpreted(EACH, json.dumps([PRELUDE, CHECKS]))
    said = dict(map(json.loads, done.stdout.splitlines()))
    return {name: said.get(name, f"it did not come to this check: {done.stderr}") for name in CHECKS}


@needs_triton
@pytest.mark.parametrize("check", CHECKS)
def test_kernels_equal_plain_pytorch(check: str, failures: dict[str, str]) -> None:
    assert failures[check] == ""


def test_a_processor_never_uses_them() -> None:
    assert kernels_for(torch.zeros(1), "cell") is None
    with only():
        assert kernels_for(torch.zeros(1), "output") is None
