"""Which module may import which: floors, no rings, a numeric core on its own, and a fast `--help`."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "backtalk"
FLOORS = [
    "errors types stats terminal wording output_file deadline",
    "protocols registry specs",
    "data hits store",
    "models scorers training searches",
    "report runs audit paraphrase hardening rating risk",
    "api testing web",
    "cli __main__",
]
"""From the ground up. A room, which is a file or folder of the package, imports from its own floor and those
below."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms.split()}
LIGHT = {"errors", "types", "terminal", "protocols", "registry", "specs", "cli"}
"""The rooms that `backtalk --help` imports. They import the standard library and each other."""
LATER = {
    *("listing.py", "score.py", "score_card.py", "showing.py", "showing_risk.py"),
    *("train.py", "train_scorer.py"),
}
"""The files of `cli` that are imported when their command runs, and not before."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package but its root, whose public names are imported when they are used."""
    found = {path.relative_to(SOURCE.parent).with_suffix("").parts: path for path in SOURCE.rglob("*.py")}
    named = {".".join(parts).removesuffix(".__init__"): path for parts, path in found.items()}
    return {name: path for name, path in named.items() if name != "backtalk"}


@cache
def imports(path: Path, runtime_only: bool = False) -> set[str]:
    """The modules that a file imports anywhere; with `runtime_only`, those imported as it is imported."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if runtime_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if runtime_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            assert node.module, f"{path} has a relative import"
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & modules().keys()
            names.update(inner)
            if len(inner) < len(node.names) and [alias.name for alias in node.names] != ["__version__"]:
                names.add(node.module)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return names


def room(module: str) -> str:
    return module.split(".")[1]


def graph() -> dict[str, set[str]]:
    """Each module and those of the package that it imports."""
    return {name: imports(path) & modules().keys() for name, path in modules().items()}


def in_rings(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """What is left after removing, again and again, the nodes that import nothing or that nothing imports."""
    left = {name: needs - {name} for name, needs in graph.items()}
    while True:
        needed = set().union(*left.values())
        kept = {name: needs & left.keys() for name, needs in left.items() if needs & left.keys()}
        kept = {name: needs for name, needs in kept.items() if name in needed}
        if kept == left:
            return kept
        left = kept


def files(part: str) -> list[Path]:
    return [path for name, path in modules().items() if room(name) == part]


def test_every_room_has_a_floor() -> None:
    assert {room(name) for name in modules()} == FLOOR.keys()


@pytest.mark.parametrize("part", FLOOR)
def test_no_room_imports_from_above(part: str) -> None:
    for path in files(part):
        for name in imports(path):
            assert name != "backtalk", f"{path.name} imports the package's root"
            if name.startswith("backtalk."):
                assert FLOOR[room(name)] <= FLOOR[part], f"{path.name} imports {name}"


def test_no_ring_of_modules() -> None:
    """Imports inside functions and for type checking count."""
    assert in_rings(graph()) == {}


def test_no_ring_of_rooms() -> None:
    rooms: dict[str, set[str]] = {part: set() for part in FLOOR}
    for name, needs in graph().items():
        rooms[room(name)] |= {room(other) for other in needs}
    # Specs name searches by the registry, and the registry loads models with the options of one spec.
    rooms["registry"].discard("specs")
    assert in_rings(rooms) == {}


def test_the_package_stands_alone() -> None:
    for path in modules().values():
        outside = {name.split(".")[0] for name in imports(path)}
        assert not outside & {"reproduction", "benchmarks", "tests"}, path


@pytest.mark.parametrize("part", ["data", "models", "scorers", "searches", "training"])
def test_the_numeric_core_needs_torch_numpy_and_safetensors_only(part: str) -> None:
    allowed = {"torch", "numpy", "safetensors", "backtalk", *sys.stdlib_module_names}
    for path in files(part):
        outside = {name.split(".")[0] for name in imports(path)} - allowed
        # Imported when used: the corpus package, sacrebleu, the readers of word vectors and of sentences, and
        # the kernels, by fused.py, where Triton is.
        own = {
            "kernels.py": {"triton"},
            "tail_kernel.py": {"triton"},
            "cost.py": {"sacrebleu"},
            "similarity.py": {"tokenizers"},
            # Hugging Face models
            "library.py": {"transformers"},
            "source.py": {"huggingface_hub"},
            "loading.py": {"peft"},
            "gguf_file.py": {"gguf"},
            "attention.py": {"transformers"},
            "lora.py": {"peft"},
        }
        optional = own.get(path.name, {"chitchat_dataset"})
        assert outside <= optional, f"{path.name} imports {outside}"


@pytest.mark.parametrize("part", sorted(LIGHT))
def test_help_imports_nothing_heavy(part: str) -> None:
    for path in files(part):
        if path.name in LATER:
            continue
        for name in imports(path, runtime_only=True):
            top, _, rest = name.partition(".")
            assert top in sys.stdlib_module_names or top == "backtalk", f"{path.name} imports {name}"
            if top == "backtalk" and rest not in {"", "__version__"}:
                assert rest.split(".")[0] in LIGHT, f"{path.name} imports {name}"


def test_only_the_gpu_folder_captures_cuda_graphs() -> None:
    for path in SOURCE.rglob("*.py"):
        if path.parent != SOURCE / "models" / "gpu":
            text = path.read_text(encoding="utf-8")
            found = [name for name in ("CUDAGraph", "cuda.graph") if name in text]
            assert not found, f"{path.name} captures a CUDA graph"
