"""Finds uses of the private names of libraries: `python -m tools.private_names`, part of `make check`.

It goes further than ruff's SLF001, which sees only `object._name` where the object is not `self`. Besides that it finds

- `import library._module`, `from library import _name`
- `self._name` in a subclass of a library's class, where only that class has the name
- `_name` defined in a subclass where the library's class has it: it overrides an internal
- names in strings: `getattr(x, "_name")`, `monkeypatch.setattr(x, "_name", …)`, `patch("library._name")`
- dunder names that neither Python nor a library documents, such as `__pydantic_validator__`

A private name counts as ours if the file defines it, or a module of ours that it imports, directly or through another one. What it
does not find: internal modules without an underscore, and a library's `_name` where one of ours there has the same name.

Every use that remains is listed with its reason in private_names.toml. A use that is not listed fails the check, and so does an
entry that is not used any more: the list only shrinks.
"""

import ast
import builtins
import enum
import importlib
import re
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
ALLOWED: Final = Path(__file__).with_name("private_names.toml")
_OWN_PACKAGES: Final = frozenset(
    {"forwarder", "tests", "tools", "bench", "reservation_forwarder_client", "forwarder_pms_kit"}
)
_ELSEWHERE: Final = {"reservation_forwarder_client": "clients/python", "forwarder_pms_kit": "pms-kit"}
_DUNDER: Final = re.compile(r"__\w+__")
_STRING_FUNCTIONS: Final = frozenset({"getattr", "setattr", "hasattr", "delattr", "attrgetter", "patch", "delitem"})

_DOCUMENTED: Final = frozenset(
    """
    _asdict _field_defaults _fields _make _replace _mapping
    _exit _getframe _current_frames
    """.split()  # of named tuples, ast and SQLAlchemy's rows; of os and sys
)
_DOCUMENTED_DUNDERS: Final = frozenset(
    """
    __all__ __main__ __path__ __version__ __wrapped__ __tracebackhide__ __test__ __match_args__ __slots__ __post_init__
    __set_name__ __init_subclass__ __class_getitem__ __missing__ __del__ __aenter__ __aexit__ __aiter__ __anext__ __await__
    __enter__ __exit__ __fspath__ __get__ __set__ __delete__ __getattr__ __instancecheck__ __subclasscheck__ __prepare__
    __cause__ __context__ __notes__ __traceback__ __suppress_context__ __debug__ __import__ __future__ __signature__
    __total__ __required_keys__ __optional_keys__ __dataclass_fields__ __metadata__ __buffer__ __release_buffer__
    __bytes__ __complex__ __length_hint__ __reversed__
    __get_pydantic_core_schema__ __get_pydantic_json_schema__
    __clause_element__ __table__ __tablename__ __visit_name__
    """.split()  # of Python; then of pydantic, and of SQLAlchemy
)
_PYTHON_DUNDERS: Final = frozenset(
    name
    for each in (*vars(builtins).values(), *vars(types).values(), builtins, types, enum.Enum, type, sys)
    for name in dir(each)
    if _DUNDER.fullmatch(name)
)


@dataclass(frozen=True, slots=True)
class Use:
    """A private name of a library, as it is used in a file."""

    path: str
    line: int
    name: str


@dataclass(slots=True)
class _Module:
    """What a file imports and defines."""

    tree: ast.Module
    libraries: dict[str, str] = field(default_factory=dict)
    """The local name of each thing imported from a library, and its full name."""
    own_modules: set[str] = field(default_factory=set)
    defined: set[str] = field(default_factory=set)
    """The private names that it defines: functions, classes, variables, attributes."""


def uses_in(path: str, source: str) -> list[Use]:
    """The uses in one file of this repository, in the order of its lines."""
    found = _Finder(path, _read(source))
    found.visit(found.module.tree)
    return sorted(found.uses, key=lambda use: (use.line, use.name))


def allowed() -> Mapping[str, Sequence[str]]:
    """For each path, the names that private_names.toml lists."""
    return {each["path"]: each["names"] for each in tomllib.loads(ALLOWED.read_text())["file"]}


def main() -> int:
    """Print what is not listed, and what is listed and not used. The exit status."""
    listed = allowed()
    used: dict[tuple[str, str], Use] = {}
    for path in _tracked_files():
        for use in uses_in(path, (ROOT / path).read_text()):
            used.setdefault((path, use.name), use)
    new = [use for (path, name), use in used.items() if name not in listed.get(path, ())]
    gone = [(path, name) for path, names in listed.items() for name in names if (path, name) not in used]
    for use in new:
        print(f"{use.path}:{use.line}: {use.name} is a private name of a library")
    for path, name in gone:
        print(f"tools/private_names.toml: {path} does not use {name} any more: remove the entry")
    if not new and not gone:
        print(f"Private names of libraries: {len(used)} in {len({path for path, _ in used})} files, all listed.")
    return 1 if new or gone else 0


def _tracked_files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    return [path for path in listed.stdout.split() if (ROOT / path).exists()]


def _read(source: str) -> _Module:
    module = _Module(ast.parse(source))
    for node in ast.walk(module.tree):
        match node:
            case ast.Import(names):
                for alias in names:
                    _note_import(module, alias.asname or alias.name.partition(".")[0], alias.name)
            case ast.ImportFrom(origin, names) if origin:
                for alias in names:
                    _note_import(module, alias.asname or alias.name, f"{origin}.{alias.name}")
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name) | ast.arg(name):
                module.defined.add(name)
            case ast.Name(name, ast.Store()):
                module.defined.add(name)
            case ast.Attribute(ast.Name("self" | "cls"), name, ast.Store()):
                module.defined.add(name)
            case _:
                pass
    return module


def _note_import(module: _Module, local: str, full: str) -> None:
    if full.partition(".")[0] in _OWN_PACKAGES:
        module.own_modules.update((full, full.rpartition(".")[0]))
    else:
        module.libraries[local] = full


@cache
def _defined_by(module: str) -> frozenset[str]:
    """The private names that a module of ours defines, or one that it imports."""
    read = _read_own(module)
    return frozenset(read.defined.union(*(_read_own(each).defined for each in read.own_modules)))


@cache
def _read_own(module: str) -> _Module:
    path = ROOT / _ELSEWHERE.get(module.partition(".")[0], "") / module.replace(".", "/")
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    return _read(file.read_text() if file.exists() else "")


class _Finder(ast.NodeVisitor):
    def __init__(self, path: str, module: _Module) -> None:
        self.module = module
        self.uses: list[Use] = []
        self._path = path
        self._bases: list[type] = []

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._note_path(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._note_path(node, f"{node.module or ''}.{alias.name}")

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._bases = self._bases, [each for base in node.bases if (each := self._library_class(base))]
        for name in _members(node):
            if _is_private(name) and any(hasattr(base, name) for base in self._bases):
                self._note(node, name)
        self.generic_visit(node)
        self._bases = outer

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = node.attr
        match node.value:
            case _ if _is_unknown_dunder(name):
                self._note(node, name)
            case _ if not _is_private(name):
                pass
            case ast.Name("self" | "cls") | ast.Call(ast.Name("super")):
                if name not in self.module.defined and (self._bases or not self._is_ours(name)):
                    self._note(node, name)
            case value if _root(value) in self.module.libraries or not self._is_ours(name):
                self._note(node, name)
            case _:
                pass
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function in _STRING_FUNCTIONS:
            for argument in node.args[:2]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    self._note_string(node, argument.value)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store) and _is_unknown_dunder(node.id):
            self._note(node, node.id)

    def _note_string(self, node: ast.AST, text: str) -> None:
        root, *names = text.split(".")
        if names and root not in _OWN_PACKAGES:
            self._note_path(node, text)
        elif not names and (_is_unknown_dunder(text) or (_is_private(text) and not self._is_ours(text))):
            self._note(node, text)

    def _note_path(self, node: ast.AST, full: str) -> None:
        root, *names = full.split(".")
        if root not in _OWN_PACKAGES and root != "__future__":
            for name in (root, *names):
                if _is_private(name):
                    self._note(node, name)

    def _note(self, node: Any, name: str) -> None:
        self.uses.append(Use(self._path, node.lineno, name))

    def _is_ours(self, name: str) -> bool:
        return name in self.module.defined or any(name in _defined_by(each) for each in self.module.own_modules)

    def _library_class(self, base: ast.expr) -> type | None:
        local, *names = ast.unparse(base).partition("[")[0].split(".")
        full = self.module.libraries.get(local)
        if full is None:
            return None
        found: Any = _resolve(".".join([full, *names]))
        return found if isinstance(found, type) else None


@cache
def _resolve(full: str) -> object:
    """What a dotted name stands for; None if it cannot be imported here."""
    head, _, last = full.rpartition(".")
    try:
        return getattr(importlib.import_module(head), last) if head else importlib.import_module(full)
    except (ImportError, AttributeError):
        return None


def _members(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        match each:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.AnnAssign(ast.Name(name)):
                yield name
            case ast.Assign(targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case _:
                pass


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_private(name: str) -> bool:
    """Not those between two underscores, which enum and ctypes document."""
    dunder_like = name.startswith("_") and name.endswith("_")
    return name.startswith("_") and not dunder_like and name not in _DOCUMENTED


def _is_unknown_dunder(name: str) -> bool:
    return bool(_DUNDER.fullmatch(name)) and name not in _PYTHON_DUNDERS and name not in _DOCUMENTED_DUNDERS


if __name__ == "__main__":
    sys.exit(main())
