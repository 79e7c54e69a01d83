"""The size and shape of the source tree: `make house`.

Prints lines and files for each room of the package, then what tends to make code hard to follow: short functions, import lines,
modules with a single importer, Protocols with at most one implementation, names that several public classes share, and the words
that CONTRIBUTING asks writers to avoid. Lines are all lines of Python files that git tracks.
"""

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TREES: Final = ("forwarder", "pms-kit", "clients/python", "tools", "bench", "tests")
PACKAGE: Final = "forwarder"
MARKS: Final = re.compile(
    r"\b(whoever|whatever|told|tells|stands|beside|as it came|goes on|by now|of late|for ever|anew)\b|(?<=\. )Of ",
    re.IGNORECASE,
)
"""In texts: docstrings, comments and messages alike."""

Trees = Mapping[str, ast.Module]
"""The modules of the package, parsed, by their dotted names."""


def tracked(tree: str) -> Sequence[Path]:
    """The Python files of a tree that git tracks."""
    listed = subprocess.run(
        ["git", "ls-files", f"{tree}/*.py"],  # noqa: S607 - git is what makes this a checkout
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [ROOT / name for name in listed.stdout.split()]


def lines_of(path: Path) -> int:
    """How many lines the file has."""
    return len(path.read_bytes().splitlines())


def modules() -> Trees:
    """Every module of the package."""
    found = {}
    for path in tracked(PACKAGE):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text("utf-8"))
    return found


def functions(trees: Trees) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method."""
    for tree in trees.values():
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def importers(trees: Trees) -> Mapping[str, set[str]]:
    """Which modules of the package import each of them."""
    found: dict[str, set[str]] = defaultdict(set)
    for importer, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module in trees:
                submodules = {f"{node.module}.{alias.name}" for alias in node.names} & trees.keys()
                for imported in submodules or {str(node.module)}:
                    found[imported].add(importer)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name in trees:
                        found[alias.name].add(importer)
    return found


def classes(trees: Trees) -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of a module, with the module's name."""
    for module, tree in trees.items():
        yield from ((module, node) for node in tree.body if isinstance(node, ast.ClassDef))


def _methods(node: ast.ClassDef) -> frozenset[str]:
    return frozenset(
        each.name
        for each in node.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_")
    )


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def lonely_protocols(trees: Trees) -> Sequence[str]:
    """The Protocols whose methods at most one class of the package has."""
    everything = list(classes(trees))
    ordinary = [_methods(node) for _, node in everything if not _is_protocol(node)]
    return [
        f"{module}.{node.name}"
        for module, node in everything
        if _is_protocol(node) and _methods(node) and sum(_methods(node) <= each for each in ordinary) <= 1
    ]


def shared_names(trees: Trees) -> Mapping[str, int]:
    """How many public classes have a name, where that is more than one."""
    names = Counter(node.name for _, node in classes(trees) if not node.name.startswith("_"))
    return {name: count for name, count in names.items() if count > 1}


def _rooms() -> Mapping[str, tuple[int, int]]:
    rooms: dict[str, tuple[int, int]] = {}
    for path in tracked(PACKAGE):
        parts = path.relative_to(ROOT / PACKAGE).parts
        room = parts[0] if len(parts) > 1 else "(top)"
        lines, files = rooms.get(room, (0, 0))
        rooms[room] = lines + lines_of(path), files + 1
    return rooms


def main() -> None:
    """Print the tables."""
    print(f"{'room of the package':24} {'lines':>7} {'files':>6}")
    for room, (lines, files) in sorted(_rooms().items(), key=lambda each: -each[1][0]):
        print(f"{room:24} {lines:7,} {files:6}")
    print()
    for tree in TREES:
        paths = tracked(tree)
        print(f"{tree:24} {sum(map(lines_of, paths)):7,} {len(paths):6}")
    trees = modules()
    sizes = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in functions(trees)]
    by_importers = importers(trees)
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    total = sum(map(lines_of, tracked(PACKAGE)))
    marks = sum(len(MARKS.findall(path.read_text("utf-8"))) for path in tracked(PACKAGE))
    single = sum(len(by_importers[name]) == 1 for name in trees)
    most = quantiles(sizes, n=10)[8]
    print(f"\nfunctions                {len(sizes):7,}, median {median(sizes):.0f} lines, 90 % at most {most:.0f}")
    print(f"import lines             {imports / total:7.1%}")
    print(f"modules, one importer    {single:7,} of {len(trees)}")
    print(
        f"Protocols, one class     {len(lonely_protocols(trees)):7,} of {sum(_is_protocol(node) for _, node in classes(trees))}"
    )
    print(f"class names shared       {len(shared_names(trees)):7,}, by {sum(shared_names(trees).values())} classes")
    print(f"words to avoid           {marks:7,}")


if __name__ == "__main__":
    main()
