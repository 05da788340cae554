"""Runs code in Triton's interpreter: slow, exact, and without a GPU.

The interpreter must be chosen before Triton is imported, so the code runs in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

PATCH = """
from triton.runtime import interpreter
_patch = interpreter._patch_lang_tensor
def _patch_lang_tensor(tensor, *scope):
    # A loop bound is an array of shape (1,). Triton 3.6 calls int() on it, which NumPy 2.4 refuses.
    _patch(tensor, *scope)
    tensor.__index__ = lambda self: self.handle.data.item()
interpreter._patch_lang_tensor = _patch_lang_tensor
"""


def run_interpreted(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PATCH + code, *arguments]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
