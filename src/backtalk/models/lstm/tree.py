"""The log-probabilities of many replies to many inputs under the seq2seq. The nodes of a level of the prefix
tree are one batch, and each input is read once."""

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS
from backtalk.deadline import check_time
from backtalk.models.device import wide
from backtalk.models.lstm.seq2seq import DecoderState, Encoded, Seq2Seq
from backtalk.models.lstm.softmax import chunk_rows
from backtalk.models.prefix_tree import Level, PrefixTree, Served

ROWS_CPU, ROWS_CUDA = 1 << 13, 1 << 17  # of a level that are read at once


@torch.no_grad()
def tree_log_probs(network: Seq2Seq, inputs: Tensor, tree: PrefixTree, served: Served) -> Tensor:
    """(inputs, n) ids -> (inputs, sequences) log P(sequence | input), float64."""
    widest = max(len(level.fed) for level in tree.levels)
    step = max(1, (ROWS_CUDA if inputs.is_cuda else ROWS_CPU) // widest)
    parts = []
    for start in range(0, len(inputs), step):
        check_time()
        parts.append(_read(network, inputs[start : start + step], tree, served))
    return torch.cat(parts)


def _read(network: Seq2Seq, inputs: Tensor, tree: PrefixTree, served: Served) -> Tensor:
    """Level by level. A row of a level is an (input, node); the nodes of an input are neighbours."""
    rows, device = len(inputs), inputs.device
    found = torch.empty(rows, len(tree.sequences), dtype=torch.float64, device=device)
    first = network.start(inputs)
    lstm, reached = first.lstm, found.new_zeros(rows, 1)  # the log-probability of each node's tokens
    for level in tree.levels:
        nodes, above = len(level.fed), len(lstm.top) // rows
        parent = torch.tensor(level.parent, device=device)
        before = lstm.select((torch.arange(rows, device=device)[:, None] * above + parent).flatten())
        fed = torch.tensor([BOS if word < 0 else word for word in level.fed], device=device)
        gates = network.decoder.project(network.embed_output(fed))
        index = torch.arange(nodes, device=device).repeat(rows)
        state = _shared_by(network, first, nodes)._replace(lstm=before)
        lstm = network.step(gates, state, index=index).lstm
        own = _children(network.output, lstm.top.view(rows, nodes, -1), level, served)
        scores = reached[:, level.node] + own  # (rows, children)
        ends = [place for place, sequence in enumerate(level.ended) if sequence >= 0]
        found[:, [level.ended[place] for place in ends]] = scores[:, ends]
        reached = scores[:, level.below]
    return found


def _shared_by(network: Seq2Seq, first: DecoderState, nodes: int) -> DecoderState:
    """The state after the inputs for so many nodes of each: what was encoded is kept once an input."""
    context = None if first.context is None else first.context.repeat_interleave(nodes, dim=0)
    if first.own is None or network.attend is None:
        return first._replace(context=context, per_group=nodes)
    values = first.own.values
    shared = first.own._replace(keys=network.attend(values))
    none = values.new_zeros(len(values) * nodes, 0, values.shape[2])
    return first._replace(own=Encoded(none, none, None), shared=shared, per_group=nodes)


def _children(output: torch.nn.Linear, hidden: Tensor, level: Level, served: Served) -> Tensor:
    """(rows, nodes, H) -> (rows, children) log P(child | node), float64; few logits are held at once."""
    step = max(1, chunk_rows(output.out_features, hidden.device) // hidden.shape[1])
    parts = []
    for start in range(0, len(hidden), step):
        part = hidden[start : start + step]
        logits = F.linear(part, output.weight, output.bias)  # (chunk, nodes, V)
        logits, total = served.log_total(logits.to(wide(logits.dtype)))
        parts.append(logits[:, level.node, level.token].double() - total[:, level.node].double())
    return torch.cat(parts)
