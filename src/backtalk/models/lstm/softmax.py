"""The output layer for a search: the log-probability of one given word, and whether it is the argmax.

With 30,000 words this layer is about three quarters of the work. Rows are computed a few at a time so that
their logits stay in the CPU's cache; on a GPU a kernel folds the log-sum-exp into the product.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.gpu.fused import kernels_for

CHUNK_FLOATS_CPU = 1 << 22  # logits held at once on a CPU: 16 MB; measured best of 4 to 32 MB
CHUNK_FLOATS_CUDA = 1 << 28


def chunk_rows(columns: int, device: torch.device) -> int:
    return max(16, (CHUNK_FLOATS_CUDA if device.type == "cuda" else CHUNK_FLOATS_CPU) // columns)


def target_scores(hidden: Tensor, output: nn.Linear, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`hidden` (rows, H), `targets` (rows,) -> log P(target), at least float32, and "is argmax", (rows,)."""
    kernels = kernels_for(hidden, "output")
    if kernels is not None and kernels.can_score(hidden):
        fused: tuple[Tensor, Tensor] = kernels.output_scores(hidden, output.weight, _bias(output), targets)
        return fused
    rows = hidden.shape[0]
    dtype = wide(hidden.dtype)
    log_probs = hidden.new_empty(rows, dtype=dtype)
    is_argmax = torch.empty(rows, dtype=torch.bool, device=hidden.device)
    weight, bias = _aligned(output) if hidden.is_cuda else (output.weight, output.bias)
    step = chunk_rows(output.out_features, hidden.device)
    reduction = kernels_for(hidden, "reduce")
    for start in range(0, rows, step):
        part = slice(start, start + step)
        logits = F.linear(hidden[part], weight, bias)  # (chunk, V)
        if reduction is not None:
            log_probs[part], is_argmax[part] = reduction.reduce_logits(logits, targets[part])
            continue
        chosen = logits.gather(1, targets[part, None]).squeeze(1)
        largest = logits.amax(dim=1)
        is_argmax[part] = chosen >= largest
        log_total = logits.sub_(largest[:, None]).exp_().sum(dim=1, dtype=dtype).log_()
        log_probs[part] = chosen.to(dtype) - largest.to(dtype) - log_total
    return log_probs, is_argmax


def _aligned(output: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """Padded with impossible words to a multiple of 64: on a GPU unaligned rows take three times as long."""
    missing = -output.out_features % 64
    if not missing:
        return output.weight, output.bias
    return F.pad(output.weight, (0, 0, 0, missing)), F.pad(_bias(output), (0, missing), value=-torch.inf)


def _bias(output: nn.Linear) -> Tensor:
    return output.weight.new_zeros(output.out_features) if output.bias is None else output.bias
