"""Batches that fit, a planted allocator failure, and a real limit on memory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from backtalk.errors import InputError
from backtalk.models.device import free_bytes, is_out_of_memory
from backtalk.models.transformer import memory
from backtalk.models.transformer.memory import footprint, run_batches
from tests.models.transformer.tiny import make_network

CPU = torch.device("cpu")


class Worker:
    """Doubles a row's number; more than `most` rows are too many, for the first `failures` times."""

    def __init__(
        self, most: int = 1 << 30, failures: int = 1 << 30, error: type[Exception] | None = None
    ) -> None:
        self.most, self.failures, self.error = most, failures, error or torch.cuda.OutOfMemoryError
        self.batches: list[list[int]] = []

    def __call__(self, rows: list[int]) -> list[int]:
        self.batches.append(rows)
        if len(rows) > self.most and self.failures > 0:
            self.failures -= 1
            raise self.error("DefaultCPUAllocator: can't allocate memory")
        return [2 * row for row in rows]


def cheap(length: int) -> int:
    return 1


def test_rows_of_like_length_go_together_and_come_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory.MOST_TOKENS, "cpu", 20)
    work = Worker()
    assert run_batches([3, 10, 4, 9, 2, 1], cheap, work, CPU) == [0, 2, 4, 6, 8, 10]
    assert work.batches == [[1, 3], [2, 0, 4, 5]]  # 2 x 10 tokens, then 4 x 4


def test_a_caller_may_bound_a_batch_otherwise() -> None:
    work = Worker()
    assert run_batches([5] * 5, cheap, work, CPU, {"cpu": 10}) == [0, 2, 4, 6, 8]
    assert work.batches == [[0, 1], [2, 3], [4]]


def test_batches_are_cut_before_rows_of_half_the_length_where_it_is_worth_it() -> None:
    lengths = [3, 100, 50, 51, 4, 100, 50]
    for worth, expected in (
        (None, [[1, 5, 3, 2, 6, 4, 0]]),
        (1 << 20, [[1, 5, 3, 2, 6, 4, 0]]),
        (192, [[1, 5, 3], [2, 6, 4, 0]]),  # 4 x 50 are spared; then 2 x 46
        (92, [[1, 5, 3], [2, 6], [4, 0]]),
    ):
        work = Worker()
        found = run_batches(lengths, cheap, work, CPU, worth=None if worth is None else {"cpu": worth})
        assert found == [2 * row for row in range(7)]
        assert work.batches == expected


def test_cut_batches_are_halved_too() -> None:
    work = Worker(most=2)
    assert run_batches([100] * 4 + [10] * 3, cheap, work, CPU, worth={"cpu": 1}) == list(range(0, 14, 2))
    assert work.batches == [[0, 1, 2, 3], [0, 1], [2, 3], [4, 5], [6]]


def test_a_batch_takes_its_share_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    work = Worker()
    run_batches([7] * 10, lambda length: length * 20, work, CPU)
    assert {len(rows) for rows in work.batches} == {4, 2}  # 600 bytes at 140 a row
    greedy = Worker()
    assert run_batches([7], lambda length: 10**9, greedy, CPU) == [0]  # a row that can't fit is tried


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, MemoryError, RuntimeError])
def test_rows_are_halved_once(error: type[Exception]) -> None:
    work = Worker(most=6, error=error)
    assert run_batches([5] * 10, cheap, work, CPU) == [2 * row for row in range(10)]
    assert [len(rows) for rows in work.batches] == [10, 5, 5]


@pytest.mark.parametrize(("most", "rows"), [(2, 10), (0, 1)])
def test_the_second_failure_is_one_sentence(most: int, rows: int) -> None:
    with pytest.raises(InputError, match=r" cpu with \d .* 5 tokens"):
        run_batches([5] * rows, cheap, Worker(most), CPU)


def test_other_errors_pass() -> None:
    def work(rows: list[int]) -> list[int]:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        run_batches([1], cheap, work, CPU)


def test_the_allocators_own_words_are_known() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(1 << 50)
    assert is_out_of_memory(refused.value)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "t5", "bart"])
def test_keys_and_values_are_counted_right(kind: str) -> None:
    """Against the cache that the network really keeps for 10 tokens read and 10 written."""
    network = make_network(kind, 100)
    ids = torch.ones(1, 10, dtype=torch.long)
    inputs = {"input_ids": ids}
    if network.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = ids
    with torch.no_grad():
        kept = network(**inputs, use_cache=True).past_key_values
    tensors = {id(tensor): tensor for tensor in _tensors(kept)}  # some releases show them twice
    total = sum(tensor.numel() * 4 for tensor in tensors.values())
    assert footprint(network.config, 4).cache * 10 == total


def _tensors(value: object) -> list[torch.Tensor]:
    """What a cache holds, in whatever shape a release of transformers gives it."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in _tensors(part)]
    names = ["self_attention_cache", "cross_attention_cache", "layers", "key_cache", "value_cache"]
    names += ["keys", "values"]
    return [tensor for name in names for tensor in _tensors(getattr(value, name, []))]


LIMITED = """
    import json, os, resource, sys, traceback
    from pathlib import Path
    import torch
    torch.set_num_threads(1)
    from backtalk.errors import InputError
    from backtalk.models.transformer import memory
    from backtalk.models.transformer.scoring import Row, token_log_probs, make_batch
    from transformers import LlamaConfig, LlamaForCausalLM

    network = LlamaForCausalLM(LlamaConfig(
        vocab_size=30000, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2))
    need, sizes = memory.footprint(network.config, 4), []
    reply = 20

    @torch.no_grad()
    def score(numbers):
        rows = [Row([5] * 20, [number + 3] * reply) for number in numbers]
        found = token_log_probs(network, make_batch(rows, 0, network.device))
        sizes.append(len(numbers))
        return found.view(len(numbers), -1).sum(1).tolist()

    expected = score([0, 119])
    sizes.clear()

    def work(room, length, plan):
        global reply
        reply = length
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (room << 20), used + (room << 20)))
        if plan == "wrong":  # it forgets everything
            memory.free_bytes = lambda device: 1 << 50
        try:
            lengths = [20 + reply] * 120
            found = memory.run_batches(lengths, lambda l: need.scoring(l, reply), score, network.device)
        except InputError as error:
            print(error)
            return 2
        assert abs(found[0] - expected[0]) < 1e-3 and abs(found[-1] - expected[1]) < 1e-3
        print(sizes)
        return 0

    for name, (room, length, plan) in json.loads(sys.argv[1]).items():
        child = os.fork()  # a limit can't be taken back
        if not child:
            for number, stream in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{name}.{stream}", os.O_WRONLY | os.O_CREAT), number)
            try:
                status = work(room, length, plan)
            except BaseException:
                traceback.print_exc()
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        Path(f"{name}.json").write_text(json.dumps(status))
"""
CASES = {"small": (250, 20, "right"), "wrong plan": (480, 20, "wrong"), "too small": (3, 300, "right")}
"""MB of room, words of a reply, and whether the plan is right. 300 words want 36 MB for their logits alone,
more than an allocator keeps for itself of what it was given back."""


EXACT = {"MIMALLOC_DISALLOW_ARENA_ALLOC": "1"}
"""PyTorch's allocator on ARM takes a gigabyte of addresses beforehand; the limit is on addresses."""


class Done(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """The same work in processes whose memory is limited; they are forked from one that has the network."""
    folder = tmp_path_factory.mktemp("limited")
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(LIMITED), json.dumps(CASES)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **EXACT},
        check=True,
    )
    return {
        name: Done(
            json.loads((folder / f"{name}.json").read_text()),
            (folder / f"{name}.out").read_text(),
            (folder / f"{name}.err").read_text(),
        )
        for name in CASES
    }


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="limits the address space as Linux counts it"
)
class TestARealLimit:
    def test_a_small_one_makes_small_batches(self, limited: dict[str, Done]) -> None:
        done = limited["small"]
        assert done.status == 0, done.out + done.err
        sizes = [int(size) for size in done.out.strip("[]\n").split(",")]
        assert sum(sizes) == 120
        assert len(sizes) > 1

    def test_a_wrong_plan_backs_off(self, limited: dict[str, Done]) -> None:
        done = limited["wrong plan"]
        assert (done.status, done.out) == (0, "[60, 60]\n"), done.out + done.err

    def test_too_small_a_one_is_one_sentence(self, limited: dict[str, Done]) -> None:
        done = limited["too small"]
        assert done.status == 2, done.err
        assert re.search(" cpu with 1 .* 320 tokens", done.out)
        assert done.out.count("\n") == 1
        assert done.err == ""


def test_something_is_free() -> None:
    assert 1 << 20 < free_bytes(CPU) < 1 << 50
