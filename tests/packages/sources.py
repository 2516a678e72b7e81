"""Finds the modules of the packages in the source tree, and what they import."""

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MODULES", "PACKAGES", "ROOT", "closure", "libraries"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {folder.name: folder for folder in ROOT.glob("*/*") if (folder / "py.typed").is_file()}
"""Folder of each package that users can import, by its name."""
MODULES = {
    ".".join(file.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__"): file
    for folder in PACKAGES.values()
    for file in folder.rglob("*.py")
}


def imported(module: str) -> Iterator[str]:
    """Yield each absolute name that a module may import, in functions and for types, too."""
    package = module if MODULES[module].stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = f"{package}.{node.module or ''}".rstrip(".") if node.level else str(node.module)
            yield from (base, *(f"{base}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(one.value) for one in node.args if isinstance(one, ast.Constant))


def closure(package: str) -> set[str]:
    """Return the modules of a package and all others of ours that they lead to, with the packages around them."""
    found: set[str] = set()
    waiting = [module for module in MODULES if module.partition(".")[0] == package]
    while waiting:
        module = waiting.pop()
        if module in MODULES and module not in found:
            found.add(module)
            waiting += [*imported(module), module.rpartition(".")[0]]
    return found


def libraries(module: str) -> set[str]:
    """Return the top-level names that a module imports, those of this project left out."""
    return {name.partition(".")[0] for name in imported(module)} - PACKAGES.keys()
