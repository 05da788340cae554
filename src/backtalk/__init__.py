"""backtalk finds what makes a dialogue or language model say what it must not say, trains it not to, and
proves both.

    import backtalk

    run = backtalk.audit("chitchat", ["you are so boring"], backtalk.Gibbs(sweeps=3), out="runs/mine")
    print(run.rates())

Each name below is imported when it is first used, so `import backtalk` takes no time.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_WHERE = {
    "Ast": "searches.ast.config",
    "Beam": "searches.beam",
    "Comparison": "report.comparison",
    "Consent": "audit.consent",
    "Finding": "types",
    "Gcg": "searches.gcg",
    "Gibbs": "searches.gibbs",
    "Hardening": "api",
    "InputError": "errors",
    "ModelOptions": "specs.model",
    "Negative": "training.rules",
    "Npo": "training.rules",
    "Opening": "types",
    "Progress": "types",
    "Random": "searches.random",
    "Relax": "searches.relax",
    "Retrieval": "searches.reverse.searches",
    "Reverse": "searches.reverse.searches",
    "Run": "api",
    "Target": "types",
    "Unlikelihood": "training.rules",
    "Utterances": "searches.reverse.searches",
    "Verdict": "runs.summary",
    "audit": "api",
    "compare": "api",
    "harden": "api",
    "load_model": "api",
    "load_scorer": "api",
    "verify": "api",
}
"""The module of each public name."""
__all__ = ["__version__", *_WHERE]

if TYPE_CHECKING:
    from backtalk.api import Hardening as Hardening
    from backtalk.api import Run as Run
    from backtalk.api import audit as audit
    from backtalk.api import compare as compare
    from backtalk.api import harden as harden
    from backtalk.api import load_model as load_model
    from backtalk.api import load_scorer as load_scorer
    from backtalk.api import verify as verify
    from backtalk.audit.consent import Consent as Consent
    from backtalk.errors import InputError as InputError
    from backtalk.report.comparison import Comparison as Comparison
    from backtalk.runs.summary import Verdict as Verdict
    from backtalk.searches.ast.config import Ast as Ast
    from backtalk.searches.beam import Beam as Beam
    from backtalk.searches.gcg import Gcg as Gcg
    from backtalk.searches.gibbs import Gibbs as Gibbs
    from backtalk.searches.random import Random as Random
    from backtalk.searches.relax import Relax as Relax
    from backtalk.searches.reverse.searches import Retrieval as Retrieval
    from backtalk.searches.reverse.searches import Reverse as Reverse
    from backtalk.searches.reverse.searches import Utterances as Utterances
    from backtalk.specs.model import ModelOptions as ModelOptions
    from backtalk.training.rules import Negative as Negative
    from backtalk.training.rules import Npo as Npo
    from backtalk.training.rules import Unlikelihood as Unlikelihood
    from backtalk.types import Finding as Finding
    from backtalk.types import Opening as Opening
    from backtalk.types import Progress as Progress
    from backtalk.types import Target as Target


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"backtalk has no {name!r}")
    from importlib import import_module

    return getattr(import_module(f"backtalk.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE])


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function of the Python API that has the package's name."""
        return __getattr__(self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Package(ModuleType):
    def __setattr__(self, name: str, value: Any) -> None:
        # `backtalk.audit` is a function and also a package, which Python puts in the function's place when
        # it is imported. So that package can be called.
        if name in _WHERE and isinstance(value, ModuleType):
            value.__class__ = _Callable
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
