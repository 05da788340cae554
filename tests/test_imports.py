"""Imports point one way: a module may import from its own floor and the floors below, never from above."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "backtalk"
FLOORS = [
    {"errors", "types", "terminal", "wording", "output_file"},
    {"protocols", "registry", "specs"},
    {"data", "stats"},
    {"hits", "store"},
    {"models"},
    {"scorers"},
    {"training", "searches"},
    {"report"},
    {"runs"},
    {"audit"},
    {"paraphrase"},
    {"hardening"},
    {"api"},
    {"testing", "rating"},
    {"web"},
    {"cli"},
    {"__main__"},
]
"""From the ground up. A file or folder of the package that stands on no floor fails the test."""
LIGHT = {"errors", "types", "terminal", "protocols", "registry", "specs", "cli"}
"""What `backtalk --help` imports: the standard library and each other only."""
LATER = {"listing.py", "score.py", "showing.py", "train.py", "train_scorer.py"}
"""The files of `cli` that are imported when their command runs, and not before."""


def parts() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if name != "__init__":
            found.setdefault(name, []).append(path)
    return found


def imports(path: Path, runtime_only: bool = False) -> set[str]:
    """The modules a file names in import statements; with `runtime_only` those run when it is imported."""
    names: set[str] = set()

    def visit(node: ast.AST) -> None:
        if runtime_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if runtime_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module in {"backtalk", "backtalk.audit", "backtalk.data", "backtalk.models"}:
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return names


def floor_of(part: str) -> int:
    (floor,) = (i for i, names in enumerate(FLOORS) if part in names)
    return floor


def test_every_part_stands_on_a_floor() -> None:
    assert {name for names in FLOORS for name in names} == parts().keys()


@pytest.mark.parametrize("part", sorted(name for names in FLOORS for name in names))
def test_no_part_imports_from_above(part: str) -> None:
    for path in parts()[part]:
        for name in imports(path):
            pieces = name.split(".")
            if pieces[0] == "backtalk" and len(pieces) > 1 and pieces[1] != "__version__":
                assert floor_of(pieces[1]) <= floor_of(part), f"{path.name} imports {name}"


def test_no_file_of_a_hardening_imports_itself_through_others() -> None:
    """Imports inside functions and for type checking count too."""
    files = {
        ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in parts()["hardening"]
    }
    named = {name.removesuffix(".__init__"): path for name, path in files.items()}
    graph = {name: {other for other in imports(path) if other in named} for name, path in named.items()}
    while graph:
        last = {name for name, needed in graph.items() if not needed & graph.keys()}
        assert last, f"a ring: {sorted(graph)}"
        for name in last:
            del graph[name]


@pytest.mark.parametrize("part", ["data", "models", "scorers", "searches", "training"])
def test_the_numeric_core_needs_torch_numpy_and_safetensors_only(part: str) -> None:
    import sys

    allowed = {"torch", "numpy", "safetensors", "backtalk", *sys.stdlib_module_names}
    for path in parts()[part]:
        outside = {name.split(".")[0] for name in imports(path)} - allowed
        # Imported when used: the corpus package, sacrebleu, the readers of word vectors and of sentences, and
        # the kernels, by fused.py, where Triton is.
        own = {
            "kernels.py": {"triton"},
            "tail_kernel.py": {"triton"},
            "bleu.py": {"sacrebleu"},
            "vectors.py": {"tokenizers"},
            "similarity.py": {"transformers"},
            # Hugging Face models
            "source.py": {"huggingface_hub"},
            "loading.py": {"transformers", "peft"},
            "generation.py": {"transformers"},
            "kv_slots.py": {"transformers"},
            "attending.py": {"transformers"},
            "smollm2.py": {"transformers", "gguf"},
            "lora.py": {"peft"},
            "sequence.py": {"transformers"},
        }
        optional = own.get(path.name, {"chitchat_dataset"})
        assert outside <= optional, f"{path.name} imports {outside}"


@pytest.mark.parametrize("part", sorted(LIGHT))
def test_help_imports_nothing_heavy(part: str) -> None:
    import sys

    for path in parts()[part]:
        if path.name in LATER:
            continue
        for name in imports(path, runtime_only=True):
            top, _, rest = name.partition(".")
            assert top in sys.stdlib_module_names or top == "backtalk", f"{path.name} imports {name}"
            if top == "backtalk" and rest not in {"", "__version__"}:
                assert rest.split(".")[0] in LIGHT, f"{path.name} imports {name}"
