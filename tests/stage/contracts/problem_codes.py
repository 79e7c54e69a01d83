"""Where the code makes problems, and which of the catalogue it uses, read from its sources."""

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import forwarder
from forwarder.reservation import problems as catalogue
from forwarder.reservation.problems import ProblemType

_ROOT = Path(forwarder.__file__).parent
_ELSEWHERE = (
    _ROOT / "reservation" / "problems.py",
    _ROOT / "simulator",  # a PMS's problems, not the service's
)


def made_by_hand() -> list[str]:
    """Every place where a `Problem` is made otherwise than by the catalogue."""
    return [
        f"{path}:{node.lineno}"
        for path, node in _nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem"
    ]


def used() -> set[str]:
    """The codes of the catalogue's problems that are made somewhere."""
    codes = {one.code for _, node in _nodes() for one in _meant(node)}
    return codes | {one.code for one in catalogue.REFUSALS}  # which are chosen by what a PMS says


def fault_codes() -> set[str]:
    """The codes of the faults of a request, as they are written where bodies and query parameters are read."""
    sources = (
        *(_ROOT / "reservation" / "checks").glob("*.py"),
        _ROOT / "reservation" / "booking.py",
        _ROOT / "http" / "parameters.py",
        _ROOT / "query" / "routes.py",
        *(_ROOT / "webhooks").glob("*.py"),
    )
    return {code for path in sources for node in ast.walk(_parsed(path)) for code in _fault_code(node)}


@cache
def _nodes() -> Sequence[tuple[Path, ast.Call | ast.Attribute]]:
    """Every call and every attribute."""
    return [
        (path.relative_to(_ROOT), node)
        for path in sorted(_ROOT.rglob("*.py"))
        if not any(path.is_relative_to(folder) for folder in _ELSEWHERE)
        for node in ast.walk(_parsed(path))
        if isinstance(node, ast.Call | ast.Attribute)
    ]


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _meant(node: ast.AST) -> Iterator[ProblemType]:
    match node:
        case ast.Attribute(value=ast.Name(id="catalogue"), attr=name):
            meant = getattr(catalogue, name, None)
            if isinstance(meant, ProblemType):
                yield meant


def _fault_code(node: ast.AST) -> Iterator[str]:
    """Of `Fault(pointer, code, detail)`, of a `return code, detail`, of a table of these, and of `BadTarget(code, detail)`."""
    match node:
        case ast.Dict(values=values):
            found = [each.args[1] if isinstance(each, ast.Call) and len(each.args) > 1 else each for each in values]
            for each in found:  # `dict.fromkeys(kinds, (code, detail))` has the same one of several
                match each:
                    case ast.Tuple(elts=[ast.Constant(value=str(code)), ast.Constant(value=str())]):
                        yield code
        case ast.Call(func=ast.Name(id="BadTarget"), args=[ast.Constant(value=str(code)), *_]):
            yield code
        case ast.Call(func=ast.Name(id="FieldFault"), args=[_, ast.Constant(value=str(code)), *_]):
            yield code
        case ast.Return(value=ast.Tuple(elts=[ast.Constant(value=str(code)), _])):
            yield code
