"""backtalk finds what makes a dialogue or language model say what it must not say, trains it not to, and
proves both.

    import backtalk

    run = backtalk.audit("chitchat", ["you are so boring"], backtalk.Gibbs(sweeps=3), out="runs/mine")
    print(run.rates())

The public names are those of `backtalk.api`, which is imported when one is first used.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backtalk.api import *  # for type checkers; a program uses `__getattr__`

__version__ = "0.1.0"
__all__ = [
    "Ast", "Beam", "Comparison", "Consent", "Finding", "Gcg", "Gibbs", "Hardening", "InputError",
    "ModelOptions", "Negative", "Npo", "Opening", "Progress", "Random", "Relax", "Retrieval", "Reverse",
    "RiskEstimate", "Run", "Target", "Unlikelihood", "Utterances", "Verdict", "__version__", "audit",
    "compare", "harden", "load_model", "load_scorer", "risk", "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"backtalk has no {name!r}")
    from importlib import import_module

    return getattr(import_module("backtalk.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function of `backtalk.api` that has the package's name."""
        return __getattr__(self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # `backtalk.audit` and `backtalk.risk` are functions and also packages, which Python puts in the
        # functions' place when it imports them. So these packages can be called.
        if name in ("audit", "risk") and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
