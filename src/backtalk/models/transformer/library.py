"""The transformers library: imported when it is needed, and kept quiet."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from backtalk.errors import InputError


def load_transformers(extra: str = "hf") -> Any:
    """The module, without progress bars, which would draw over ours, and without warnings: what matters is
    checked where a model is loaded."""
    try:
        import transformers
        from transformers.utils import logging
    except ImportError as error:
        raise needs_extra(error, extra) from None
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    return transformers


def release() -> tuple[int, int]:
    """Major and minor version of the installed library."""
    try:
        major, minor, *_ = version("transformers").split(".")
    except PackageNotFoundError:
        raise needs_extra("it is not installed") from None
    return int(major), int(minor)


def needs_extra(why: object, extra: str = "hf") -> InputError:
    return InputError(f"Hugging Face models need transformers ({why}); pip install 'backtalk[{extra}]'")
