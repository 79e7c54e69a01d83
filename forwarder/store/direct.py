"""Statements as PostgreSQL's driver takes them: SQLAlchemy makes the text and converts the parameters, once compiled. No I/O."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Dialect, Executable
from sqlalchemy.sql import ClauseElement
from sqlalchemy.sql.compiler import SQLCompiler


@dataclass(frozen=True, slots=True)
class Direct:
    """A compiled statement. `takes`: its parameters in their order, each with what brings a value into the driver's form."""

    text: str
    takes: tuple[tuple[str, Callable[[Any], Any] | None], ...]

    def values(self, parameters: Mapping[str, Any]) -> list[Any]:
        """What it takes of these, as the driver takes it."""
        return [parameters[name] if bind is None else bind(parameters[name]) for name, bind in self.takes]


def direct(statement: Executable, dialect: Dialect) -> Direct:
    """`statement`, compiled for asyncpg. All that it takes are parameters without values of their own, none of them expanding."""
    assert isinstance(statement, ClauseElement)  # noqa: S101 - whatever can be carried out is one
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)  # noqa: S101
    assert all(parameter.required for parameter in compiled.binds.values())  # noqa: S101
    types = {name: parameter.type.dialect_impl(dialect) for name, parameter in compiled.binds.items()}
    order = compiled.positiontup or ()
    return Direct(compiled.string, tuple((name, types[name].bind_processor(dialect)) for name in order))
