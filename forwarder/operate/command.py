"""Shared by commands: the open backend, signals, groups of options, and parsing of operators' input: times, credentials, and
options of accounts, given singly or in files."""

import asyncio
import inspect
import json
import re
import signal
import sys
import tomllib
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

from forwarder.assembly.backend import Backend, database_of, open_backend, open_log
from forwarder.assembly.start import settings_and_logging
from forwarder.operate.output import Failed, WrongUsage
from forwarder.oversight.audit import Actor, acting_as
from forwarder.pms.port import ClientTls
from forwarder.process.loops import first_of
from forwarder.settings import Settings
from forwarder.topics.port import Log, Topics

R = TypeVar("R")

Commands = Mapping[str, Callable[..., None]]
"""The commands of a group, by name."""


def with_backend(command: Callable[[Backend], Awaitable[R]], *, any_secret: bool = False, creates: bool = False) -> R:
    """Runs `command` against the open backend and returns its result. `any_secret`: as in `open_backend`. Only with `creates` does
    it make the data directory of an embedded deployment. Raises `BadSettings`, `NotMigrated`, `Failed` as `require_data`, and the
    errors of the store and the log."""
    settings = settings_and_logging("warning")
    if not creates:
        require_data(settings)

    async def run() -> R:
        with acting_as(Actor.operator()):
            async with open_backend(settings, any_secret=any_secret) as backend:
                return await command(backend)

    return asyncio.run(run())


def with_log(command: Callable[[Log, Topics], Awaitable[R]]) -> R:
    """Runs `command` with only the log open, and returns its result. Raises `BadSettings`, `LogUnavailable`, and `Failed` as
    `require_data`."""
    settings = settings_and_logging("warning")
    require_data(settings)

    async def run() -> R:
        async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
            return await command(log, settings.topics)

    return asyncio.run(run())


def require_data(settings: Settings) -> None:
    """Raises `Failed` if this is an embedded deployment whose directory has no data: a command run in the wrong directory must not
    start a second, empty deployment there."""
    database = database_of(settings)
    if isinstance(database, Path) and not database.is_file():
        raise Failed(
            f"no forwarder data in {database.parent.absolute()}; set FORWARDER_DATA_DIR to a deployment's directory, "
            "or start a new one with `forwarder up`"
        )


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Runs `work` to its end, or until `stop`. Raises its errors."""
    running = asyncio.ensure_future(work)
    await first_of(running, stop.wait())
    if not running.cancelled():
        running.result()


@contextmanager
def stop_on_signal() -> Iterator[asyncio.Event]:
    """An event that the first SIGINT or SIGTERM sets; a second one ends the process as it would have."""
    loop, stop, numbers = asyncio.get_running_loop(), asyncio.Event(), (signal.SIGINT, signal.SIGTERM)

    def leave() -> None:
        for number in numbers:
            loop.remove_signal_handler(number)

    def first() -> None:
        stop.set()
        leave()

    for number in numbers:
        loop.add_signal_handler(number, first)
    try:
        yield stop
    finally:
        leave()


_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with each dataclass parameter, a group of options, replaced by its fields, for typer."""
    asked = inspect.signature(command).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in asked.items() if is_dataclass(each.annotation)}

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group) if each.init})
        command(**given)

    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, own in asked.items()
        for each in (inspect.signature(groups[name]).parameters.values() if name in groups else [own])
    ]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


def moment(text: str, option: str, now: datetime) -> datetime:
    """The time that `text` means at `now`; UTC if it has no zone. Raises `WrongUsage`, which names `option`."""
    age = _AGE.fullmatch(text.strip())
    try:
        if age is not None:
            return now - timedelta(**{_UNITS[age[2]]: float(age[1])})
        written = datetime.fromisoformat(text.strip())
        return (written if written.tzinfo else written.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise WrongUsage(
            f"{option} must be a moment, such as 2027-01-31T12:00:00Z, or an age, such as 90s, 30m, 2h, 7d or 1w; "
            f"it is {text!r}."
        ) from None


def credential_from(given: str | None, file: Path | None) -> str:
    """The credential: as given, or the text of the file (`-` is standard input) without a final line feed; empty if there is
    neither. Raises `WrongUsage`."""
    if file is None:
        return given or ""
    if given:
        raise WrongUsage("Give either --credential or --credential-file.")
    return text_from(file).rstrip("\r\n")


def text_from(file: Path) -> str:
    """The file's text; `-` is standard input. Raises `WrongUsage`."""
    return sys.stdin.read() if str(file) == "-" else _text(file)


def lines_from(file: Path) -> list[str]:
    """The lines of the file (`-` is standard input) that are not blank. Raises `WrongUsage`."""
    text = text_from(file)
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise WrongUsage(f"{file} holds no value to look for.")
    return lines


def tls_from(authorities: Path | None, certificate: Path | None, key: Path | None) -> ClientTls:
    """The TLS material in these files. Raises `WrongUsage`."""
    if (certificate is None) != (key is None):
        raise WrongUsage("A client certificate needs both --certificate-file and --key-file.")
    return ClientTls(*(None if file is None else _text(file) for file in (authorities, certificate, key)))


def options_from(given: Sequence[str] | None, file: Path | None) -> dict[str, Any]:
    """The options of the file, JSON or TOML by its name, and then each `NAME=VALUE`, whose value is JSON where it can be read as
    such, and text otherwise. A file that ends in .yaml is a mapping. Raises `WrongUsage`."""
    options = {} if file is None else _table(file)
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise WrongUsage(f"--option wants NAME=VALUE; it is {name!r}.")
        options[name] = _value(value)
    return options


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _table(file: Path) -> dict[str, Any]:
    text = _text(file)
    if file.suffix in (".yaml", ".yml"):
        return {"mapping": _mapping(file, text)}
    try:
        table = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"{file} cannot be read as {'TOML' if file.suffix == '.toml' else 'JSON'}: {error}") from error
    if not isinstance(table, dict):
        raise WrongUsage(f"{file} holds no table of options.")
    return table


def _mapping(file: Path, text: str) -> str:
    """The text as it is, which is stored with the account, if it is a mapping."""
    # Imported here, because it is slow to import and few commands need it.
    from forwarder.pms.mapping.document import DocumentFault, load_document  # noqa: PLC0415
    from forwarder.pms.mapping.model import PmsMapping  # noqa: PLC0415

    try:
        load_document(text, PmsMapping)
    except DocumentFault as error:
        raise WrongUsage("\n".join(f"{file}, {fault}" for fault in error.faults)) from error
    return text


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{file} cannot be read: {error}") from error
