"""nanoGCG on one target for a given time. Run by the peers' own Python, which knows nothing of backtalk.

    python nanogcg_side.py JOB.json OUT.json

Its own code is run as it is; two of its steps are watched. Before each gradient the trigger that it holds is
noted with the time, and where the time is over the search ends there.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any


class TimeOver(Exception):
    """Ends a search from within."""


def watched_class() -> Any:
    """nanoGCG's search with a clock."""
    from nanogcg.gcg import GCG

    class Watched(GCG):  # type: ignore[misc, unused-ignore]  # has no types
        seconds = 0.0
        begun = 0.0
        clock = staticmethod(time.perf_counter)
        candidates = 0
        forward_tokens = 0
        incumbents: list[tuple[float, list[int]]] = []  # noqa: RUF012  # set by `main`

        def compute_token_gradient(self, optim_ids: Any) -> Any:
            now = self.clock() - self.begun
            self.incumbents.append((now, optim_ids[0].tolist()))
            if now > self.seconds:
                raise TimeOver
            return super().compute_token_gradient(optim_ids)

        def _compute_candidates_loss_original(self, search_batch_size: int, input_embeds: Any) -> Any:
            self.candidates += input_embeds.shape[0]
            self.forward_tokens += input_embeds.shape[0] * input_embeds.shape[1]
            return super()._compute_candidates_loss_original(search_batch_size, input_embeds)

    return Watched


def start_text(tokenizer: Any, length: int) -> str:
    """Its default start, x after x, of so many tokens."""
    for count in range(1, 4 * length):
        text = " ".join(["x"] * count)
        if len(tokenizer(text, add_special_tokens=False)["input_ids"]) == length:
            return text
    raise SystemExit(f"no start of {length} tokens")


def main(job: dict[str, Any]) -> dict[str, Any]:
    import torch

    torch.set_num_threads(job["threads"])
    from nanogcg import GCGConfig

    hf: Any = import_module("transformers")
    model = hf.AutoModelForCausalLM.from_pretrained(job["model"], torch_dtype=torch.float32).eval()
    tokenizer = hf.AutoTokenizer.from_pretrained(job["model"])
    config = GCGConfig(
        num_steps=10**9,
        optim_str_init=start_text(tokenizer, job["trigger"]),
        search_width=job["width"],
        topk=job["topk"],
        seed=job["seed"],
        verbosity="ERROR",
    )
    search = watched_class()(model, tokenizer, config)
    search.seconds, search.incumbents = job["seconds"], []
    search.clock = time.process_time if job["clock"] == "cpu" else time.perf_counter
    search.begun = search.clock()
    with suppress(TimeOver):
        search.run([{"role": "user", "content": job["prefix"] + "{optim_str}"}], job["target"])
    return {
        "tool": "nanogcg",
        "versions": {name: version(name) for name in ("nanogcg", "torch", "transformers")},
        "seconds": search.incumbents[-1][0],
        "candidates": search.candidates,
        "forward_tokens": search.forward_tokens,
        "incumbents": search.incumbents,
    }


if __name__ == "__main__":
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(main(given)), encoding="utf-8")
