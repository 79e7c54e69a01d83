"""The kinds of PMS: the built-in ones, each loaded on first use, and those of other distributions.

A distribution adds a kind by an entry point of the group `forwarder.pms`: its name is the kind, its value the adapter's class. One
that cannot be loaded is logged and stops nothing else; a built-in kind cannot be replaced.
"""

import re
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

import structlog
from pydantic import BaseModel, ValidationError

from forwarder.pms.accounts import CODED, PAGES
from forwarder.pms.fields import FieldTable
from forwarder.pms.mapping.document import faults_of
from forwarder.pms.port import AccountConnection, BadOptions, Capabilities, Limits, UnknownKind
from forwarder.pms.sdk import AdapterKind, Kind
from forwarder.process.clock import Clock
from forwarder.process.loading import load
from forwarder.tenancy.port import Account

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """An entry point that yielded no kind: of which distribution, and why."""

    kind: str
    distribution: str
    error: str

    def __str__(self) -> str:
        return f"kind {self.kind!r} of {self.distribution} is not loaded: {self.error}"


@dataclass(frozen=True, slots=True)
class Registry:
    """Every kind by name. `origins`: the distributions of those that are not built in. `not_loaded`: those that failed to load."""

    kinds: Mapping[str, AdapterKind]
    origins: Mapping[str, str] = field(default_factory=dict)
    not_loaded: Sequence[NotLoaded] = ()


def load_registry(built_in: Mapping[str, AdapterKind]) -> Registry:
    """The built-in kinds, not yet loaded, and those of all distributions. Imports what entry points name; raises nothing of it."""
    found = [
        (point, f"{point.dist.name} {point.dist.version}" if point.dist else "an unnamed distribution")
        for point in entry_points(group="forwarder.pms")
    ]
    often = Counter(point.name for point, _ in found)
    kinds: dict[str, AdapterKind] = {}
    origins, not_loaded = {}, []
    for point, whose in sorted(found, key=lambda each: (each[0].name, each[1])):
        if point.name in built_in:
            unfit = "a kind of that name is built in"
        elif often[point.name] > 1:
            unfit = "more than one distribution brings a kind of that name"
        elif re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", point.name) is None:
            unfit = "a kind is named by lower-case words with hyphens between, such as acme-fax"
        else:
            try:
                loaded = point.load()
                if not (lacking := lacks(loaded)):
                    kinds[point.name], origins[point.name] = loaded, whose
                    continue
                unfit = f"{point.value} is not the class of an adapter: {lacking}"
            except Exception as error:  # noqa: BLE001 - an error in third-party code stops nothing else
                unfit = f"{point.value} raised {type(error).__name__}: {error}"
        not_loaded.append(NotLoaded(point.name, whose, unfit))
    # Chained, not copied: copying would load every built-in kind.
    return Registry(ChainMap(kinds, built_in), origins, tuple(not_loaded))  # type: ignore[arg-type]  # only its first is written


def lacks(candidate: object) -> str:
    """What `candidate` lacks to be an `AdapterKind`; empty if nothing."""
    if not callable(candidate):
        return "it cannot be called"
    for name, wanted in {"capabilities": Capabilities, "limits": Limits, "fields": FieldTable}.items():
        if not isinstance(getattr(candidate, name, None), wanted):
            return f"its {name} is no {wanted.__name__}"
    options = getattr(candidate, "options", None)
    if not (isinstance(options, type) and issubclass(options, BaseModel)):
        return "its options is no model that extends NoOptions"
    asked = ("create", "find", "cancel") if isinstance(candidate, type) else ()
    missing = [name for name in asked if not callable(getattr(candidate, name, None))]
    return f"it has no {', '.join(missing)}" if missing else ""


class BuiltIn(Mapping[str, AdapterKind]):
    def __getitem__(self, kind: str) -> AdapterKind:
        found: AdapterKind
        found = load("forwarder.pms.mapping.adapter:shipped")(kind) if kind in PAGES else load(CODED[kind][0])
        return found

    def __contains__(self, kind: object) -> bool:
        return kind in PAGES or kind in CODED  # `__getitem__` would load it

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(PAGES | CODED.keys()))

    def __len__(self) -> int:
        return len(PAGES | CODED.keys())


KINDS: Final = BuiltIn()


@cache
def registered() -> Registry:
    """The kinds of this process: `KINDS` and those of other distributions, looked for once; logs what could not be loaded."""
    registry = load_registry(KINDS)
    for fault in registry.not_loaded:
        _log.error("adapter.not_loaded", kind=fault.kind, distribution=fault.distribution, error=fault.error)
    return registry


def check_options(kind: str, options: Mapping[str, Any], registry: Registry | None = None) -> None:
    """Raises `UnknownKind`, and `BadOptions` where an account of that kind cannot have these."""
    registry = registry or registered()
    if kind not in registry.kinds:
        known = f"There is no PMS kind {kind!r}; there are {', '.join(sorted(registry.kinds))}."
        raise UnknownKind(" ".join([known, *(f"The {fault}." for fault in registry.not_loaded if fault.kind == kind)]))
    try:
        registry.kinds[kind].options.model_validate(options)
    except ValidationError as error:
        faults = faults_of(error, options)
        raise BadOptions("; ".join(f"{'.'.join(map(str, loc)) or 'options'}: {said}" for loc, said in faults)) from None


def takes_cancellations(account: Account, clock: Clock) -> bool:
    """Whether the account allows cancellations. True if its options are invalid: the worker waits for an operator."""
    try:
        check_options(account.kind, account.options)
    except (UnknownKind, BadOptions):
        return True
    connection = AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)
    return registered().kinds[account.kind](connection, clock).capabilities.cancel


def limits_of(kind: AdapterKind, options: Mapping[str, Any]) -> Limits:
    """The published rate limits of an account with these options."""
    return kind.limits_by(options) if isinstance(kind, Kind) and kind.limits_by is not None else kind.limits
