"""nanoGCG on some targets, each for a given time or for given FLOPs. Run by the peers' own Python, which
knows nothing of backtalk.

    python nanogcg_side.py ASK.json

ASK has the folder of the model, and the path of each record with its job. Jobs differ in their targets alone.
Its own code is run as it is; two of its steps are watched. Before each gradient the trigger that it holds is
noted with the time, and where the limit is reached the search ends there. Each record is written as soon as
its search ends.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

FORWARD, BOTH = 2, 6
"""FLOPs for each parameter and token: of a forward pass, and of one with its backward pass."""


class LimitReached(Exception):
    """Ends a search from within."""


def watched_class() -> Any:
    """nanoGCG's search with a clock and a count of FLOPs."""
    from nanogcg.gcg import GCG

    class Watched(GCG):  # type: ignore[misc, unused-ignore]  # has no types
        clock = staticmethod(time.perf_counter)

        def start(self, job: dict[str, Any]) -> None:
            self.seconds, self.budget = job["seconds"] or inf, job.get("flops") or inf
            self.parameters = job.get("parameters", 0)
            self.clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
            self.candidates, self.forward_tokens, self.gradient_tokens = 0, 0, 0
            self.flops, self.counted = 0, 0
            self.incumbents: list[tuple[float, list[int]]] = []
            self.losses: list[float] = []
            self.begun = self.clock()

        def charge(self, each: int, rows: int, trigger: int) -> None:
            """For whole prompts, although what stands before the triggers is read once."""
            around = (self.before_embeds, self.after_embeds, self.target_embeds)
            tokens = trigger + sum(part.shape[1] for part in around)
            self.flops += each * self.parameters * tokens * rows

        def compute_token_gradient(self, optim_ids: Any) -> Any:
            now = self.clock() - self.begun
            self.incumbents.append((now, optim_ids[0].tolist()))
            step, self.counted = self.flops - self.counted, self.flops
            if now > self.seconds or self.flops + step > self.budget:
                raise LimitReached
            self.charge(BOTH, 1, optim_ids.shape[1])
            after = self.after_embeds.shape[1] + self.target_embeds.shape[1]
            self.gradient_tokens += optim_ids.shape[1] + after
            return super().compute_token_gradient(optim_ids)

        def _compute_candidates_loss_original(self, search_batch_size: int, input_embeds: Any) -> Any:
            rows, read = input_embeds.shape[:2]
            self.candidates += rows
            self.forward_tokens += rows * read
            self.charge(FORWARD, rows, read - self.after_embeds.shape[1] - self.target_embeds.shape[1])
            found = super()._compute_candidates_loss_original(search_batch_size, input_embeds)
            self.losses.append(float(found.min()))
            return found

    return Watched


def start_text(tokenizer: Any, length: int) -> str:
    """Its default start, x after x, of so many tokens."""
    for count in range(1, 4 * length):
        text = " ".join(["x"] * count)
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == length:
            return text
    raise SystemExit(f"no start of {length} tokens")


def main(model_folder: str, jobs: list[tuple[str, dict[str, Any]]]) -> None:
    import torch

    job = jobs[0][1]
    torch.set_num_threads(job["threads"])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = job.get("tf32", False)
    from nanogcg import GCGConfig

    hf: Any = import_module("transformers")
    how = {"torch_dtype": getattr(torch, job.get("dtype", "float32"))}
    model = hf.AutoModelForCausalLM.from_pretrained(model_folder, **how).eval().to(job.get("device", "cpu"))
    tokenizer = hf.AutoTokenizer.from_pretrained(model_folder)
    # With a seed of its own it asks torch for deterministic algorithms, which are slower.
    config = GCGConfig(
        num_steps=10**9,
        optim_str_init=start_text(tokenizer, job["trigger"]),
        search_width=job["width"],
        topk=job["topk"],
        filter_ids=job.get("filter", True),
        verbosity="ERROR",
    )
    search = watched_class()(model, tokenizer, config)
    bos = tokenizer.bos_token_id
    if bos is not None and bos not in tokenizer("x")["input_ids"]:
        # It takes every such token out of the prompt, for the tokenizer to put it back, which this one does
        # not. SmolLM2's stands before each turn. Which tokens are forbidden is decided above.
        tokenizer.bos_token = None
    gc.freeze()  # it collects garbage twice a step, and what is loaded is none
    for path, job in jobs:
        hf.set_seed(job["seed"])
        search.start(job)
        with suppress(LimitReached):
            search.run([{"role": "user", "content": job["prefix"] + "{optim_str}"}], job["target"])
        record = {
            "job": job,
            "tool": "nanogcg",
            "versions": {name: version(name) for name in ("nanogcg", "torch", "transformers")},
            "seconds": search.incumbents[-1][0],
            "candidates": search.candidates,
            "forward_tokens": search.forward_tokens,
            "gradient_tokens": search.gradient_tokens,
            "flops": search.flops,
            "target_ids": search.target_ids[0].tolist(),
            "own_losses": search.losses,  # of the triggers in `incumbents`
            "incumbents": search.incumbents,
        }
        partial = Path(path + ".partial")
        partial.write_text(json.dumps(record), encoding="utf-8")
        partial.replace(path)


if __name__ == "__main__":
    main(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
