"""Recipes may import each other, but not in circles, and run no code of checkpoints."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

RECIPES = Path(__file__).parents[2] / "recipes"


def imports_of(path: Path) -> set[str]:
    """The recipes that a recipe imports, also within functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {name for name in names if any(RECIPES.glob(f"*/{name}.py"))}
    return found


def test_recipes_do_not_import_each_other_in_circles():
    graph = {path.stem: imports_of(path) for path in RECIPES.glob("*/*.py")}
    assert any(graph.values())
    assert set(TopologicalSorter(graph).static_order()) == set(graph)  # raises a CycleError that names a circle


def test_no_code_of_checkpoints_is_run():
    trusted = []
    for path in RECIPES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".from_pretrained"):
                trusted.append(any(ast.unparse(k) == "trust_remote_code=False" for k in node.keywords))
    assert trusted
    assert all(trusted)
