"""Reading the package's source: what a reference page needs and the running code does not keep."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[2]
PACKAGE: Final = FOLDER / "forwarder"
HEAD: Final = "<!-- Generated from the code. Run `python -m tools.reference write`; do not edit. -->\n"


@cache
def modules() -> tuple[tuple[Path, ast.Module], ...]:
    """Every module of the package, in the order of their paths: its path below the package, and its tree."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return tuple((path.relative_to(PACKAGE), ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement, with the docstring that follows it; empty where none does."""
    for statement, following in zip(body, [*body[1:], None], strict=True):
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = str(following.value.value)
        yield statement, " ".join(text.split())


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
