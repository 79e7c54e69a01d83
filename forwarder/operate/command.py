"""Shared by commands: how they run, the open deployment, signals, and parsing of operators' input. A command is a function, or a
coroutine, whose parameters are its options. It returns what it shows: `Printed`."""

import asyncio
import inspect
import json
import re
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence, Sized
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from typer import Option

from forwarder.assembly.backend import Backend, database_of, open_backend, open_log
from forwarder.operate.output import AsJson, Failed, Printed, WrongUsage
from forwarder.oversight.audit import Actor, acting_as
from forwarder.process.clock import SystemClock
from forwarder.process.loops import first_of
from forwarder.reservation.submission import shadow_id
from forwarder.settings import Settings, settings_and_logging
from forwarder.tenancy.port import NotKnown
from forwarder.topics.port import Log

T = TypeVar("T")
G = TypeVar("G")


def commands(**by_name: Callable[..., Any]) -> Mapping[str, Callable[..., Any]]:
    """A group of commands. `look_up` is called as `look-up`, and `try_` as `try`."""
    return {name.strip("_").replace("_", "-"): command for name, command in by_name.items()}


def runnable(command: Callable[..., Any]) -> Callable[..., None]:
    """`command` for typer: each dataclass parameter, a group of options, is replaced by its fields; each that is annotated with
    what opens it, such as `Deployment`, is opened; a coroutine is run to its end; with `--json` where it returns `Printed`. The
    docstrings of a command and of a group end with the help of options, `name: help` a line; an option without other details is
    a plain parameter, and a flag if it is a bool."""
    signature = inspect.signature(command)
    annotations: dict[str, Any] = {name: each.annotation for name, each in signature.parameters.items()}
    groups: dict[str, Any] = {name: each for name, each in annotations.items() if is_dataclass(each)}
    details = {name: getattr(each, "__metadata__", [None])[0] for name, each in annotations.items()}
    openers = {name: each for name, each in details.items() if callable(each)}
    shows = signature.return_annotation is Printed

    async def opened(given: dict[str, Any]) -> Any:
        async with AsyncExitStack() as stack:
            given |= {name: await stack.enter_async_context(opener()) for name, opener in openers.items()}
            return await command(**given)

    @wraps(command)
    def run(**given: Any) -> None:
        as_json = shows and given.pop("as_json")
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group) if each.init})
        shown = asyncio.run(opened(given)) if inspect.iscoroutinefunction(command) else command(**given)
        if shows:
            try:
                shown.show(as_json=as_json)
                sys.stdout.flush()
            except BrokenPipeError:
                raise  # its reader has gone
            except OSError as error:
                raise Failed(f"the command is done, but its output cannot be written: {error.strerror}") from error

    named = {
        each.name: each
        for name, own in signature.parameters.items()
        if name not in openers
        for each in (inspect.signature(groups[name]).parameters.values() if name in groups else [own])
    }
    about, helps = _described(command, named)
    for group in groups.values():
        for each in reversed(group.__mro__[:-1]):
            helps |= _described(each, {field.name for field in fields(group)})[1]
    for name in helps.keys() & named.keys():
        annotation = named[name].annotation
        if get_origin(annotation) is Annotated:
            option = get_args(annotation)[1]
            option.help = option.help or helps[name]
        else:
            flag = [f"--{name.replace('_', '-')}"] if annotation is bool else []
            named[name] = named[name].replace(annotation=Annotated[annotation, Option(*flag, help=helps[name])])
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in named.values()]
    if shows:
        keyword = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("as_json", keyword, default=False, annotation=AsJson))
    run.__doc__ = about
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    vars(run)["__signature__"] = inspect.Signature(parameters)
    return run


def _described(of: Any, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """The docstring without the help of options, and that by their names. Further lines continue it."""
    about, helps = [], dict[str, str]()
    for line in (inspect.getdoc(of) or "").splitlines():
        name, colon, words = line.partition(": ")
        if colon and name in names:
            helps[name] = words
        elif helps:
            helps[[*helps][-1]] += f" {line.strip()}"
        else:
            about.append(line)
    return "\n".join(about).strip(), helps


@asynccontextmanager
async def open_deployment(*, any_secret: bool = False, creates: bool = False) -> AsyncIterator[Backend]:
    """The open backend, for an operator on the command line. `any_secret`: as in `open_backend`. `creates`: may make an embedded
    deployment's data directory. Raises `BadSettings`, `NotMigrated`, `Failed` as `require_data`, the errors of store and log."""
    settings = settings_and_logging("warning")
    if not creates:
        require_data(settings)
    with acting_as(Actor.operator()):
        async with open_backend(settings, any_secret=any_secret) as backend:
            yield backend


Deployment = Annotated[Backend, open_deployment]
WithAnySecret = Annotated[Backend, partial(open_deployment, any_secret=True)]
Limit = Annotated[int, Option(min=1, help="How many, newest first.")]
OnlyWorkspace = Annotated[str | None, Option("--workspace", help="Only this workspace's.")]


@asynccontextmanager
async def open_results() -> AsyncIterator[tuple[Log, str]]:
    """The open log, and its results topic. Raises `BadSettings`, `LogUnavailable`, `Failed` as `require_data` or without it."""
    settings = settings_and_logging("warning")
    require_data(settings)
    topic = settings.topics.results
    async with open_log(settings.backend, partitions=settings.environment.partitions) as log:
        async with log.admin() as admin:
            if topic not in await admin.list():
                raise Failed(f"there is no topic {topic} yet: `forwarder topics create`, or `forwarder up`, makes it.")
        yield log, topic


def require_data(settings: Settings) -> None:
    """Raises `Failed` if an embedded deployment has no data: a command in the wrong directory must not start an empty one there."""
    database = database_of(settings)
    if isinstance(database, Path) and not database.is_file():
        advice = "set FORWARDER_DATA_DIR to a deployment's directory, or start a new one with `forwarder up`"
        raise Failed(f"no forwarder data in {database.parent.absolute()}; {advice}")


async def require_known(
    backend: Backend, found: Sized, workspace: str | None = None, account: str | None = None
) -> None:
    """If nothing was found, raises `NotKnown` for a workspace or an account that does not exist: its name may be mistyped."""
    if found:
        return
    if workspace is not None:
        await backend.tenancy.policies(workspace)
    if account is not None and account.removeprefix(shadow_id("")) not in await backend.tenancy.account_workspaces():
        raise NotKnown(f"There is no account {account!r}.")


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


def moment(text: str, option: str, now: datetime | None = None) -> datetime:
    """The time that `text` means at `now`; UTC if it has no zone. Raises `WrongUsage`, which names `option`."""
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
    try:
        if age := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip()):
            return (now or SystemClock().now()) - timedelta(**{units[age[2]]: float(age[1])})
        written = datetime.fromisoformat(text.strip())
        return (written if written.tzinfo else written.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        valid = "a time, such as 2027-01-31T12:00:00Z, or an age, such as 90s, 30m, 2h, 7d or 1w"
        raise WrongUsage(f"{option} must be {valid}; it is {text!r}.") from None


def moment_if_given(text: str | None, option: str) -> datetime | None:
    """As `moment`; None without a text."""
    return None if text is None else moment(text, option)


def credential_from(given: str | None, file: Path | None) -> str:
    """As given, or as in the file (`-`: standard input), without a final line feed; empty without both. Raises `WrongUsage`."""
    if file is None:
        return given or ""
    if given:
        raise WrongUsage("Give either --credential or --credential-file.")
    if not (text := text_from(file).rstrip("\r\n")):
        raise WrongUsage(f"{'standard input' if str(file) == '-' else file} has no credential: it is empty.")
    return text


def parsed(option: str, read: Callable[[G], T], given: G) -> T:
    """What `read` makes of an option's value. Raises `WrongUsage`, which names the option, for its `ValueError`."""
    try:
        return read(given)
    except ValueError as error:
        raise WrongUsage(f"{option}: {error}") from error


def text_from(file: Path) -> str:
    """The file's text; `-` is standard input. Raises `WrongUsage`."""
    if str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{file} cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}") from error


def options_from(given: Sequence[str] | None, file: Path | None) -> dict[str, Any]:
    """The options of the file (TOML, JSON, or a mapping in YAML, by its name), and then each `NAME=VALUE`, whose value is JSON if
    it can be read as such, and text otherwise. Raises `WrongUsage`."""
    options = {} if file is None else _table(file)
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise WrongUsage(f"--option takes NAME=VALUE; it is {name!r}.")
        try:
            options[name] = json.loads(value)
        except (ValueError, RecursionError):
            options[name] = value
    return options


def _table(file: Path) -> dict[str, Any]:
    text = text_from(file)
    if file.suffix in (".yaml", ".yml"):
        # Imported here, because it is slow to import and few commands need it.
        from forwarder.pms.mapping.document import DocumentFault, load_document  # noqa: PLC0415
        from forwarder.pms.mapping.model import PmsMapping  # noqa: PLC0415

        try:
            load_document(text, PmsMapping)
        except DocumentFault as error:
            raise WrongUsage("\n".join(f"{file}, {fault}" for fault in error.faults)) from error
        return {"mapping": text}  # as it is, which is stored with the account
    try:
        table = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise WrongUsage(f"{file} cannot be read as {'TOML' if file.suffix == '.toml' else 'JSON'}: {error}") from error
    if not isinstance(table, dict):
        raise WrongUsage(f"{file} does not contain a table of options.")
    return table
