"""The kinds of PMS of this process, each loaded when it is first asked for; and whether an account's options suit its kind."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import structlog
from pydantic import ValidationError

from forwarder.pms.adapter import AdapterKind
from forwarder.pms.port import BadOptions, UnknownKind
from forwarder.pms.registry import Registry, load_registry
from forwarder.process.on_demand import load

_log = structlog.get_logger(__name__)


class BuiltIn(Mapping[str, AdapterKind]):
    """Kinds by name, of which only the names are known until one is asked for. `places`: where each is, as `load` takes it."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, kind: str) -> AdapterKind:
        found: AdapterKind = load(self._places[kind])
        return found

    def __contains__(self, kind: object) -> bool:
        return kind in self._places  # an answer by `__getitem__` would load it

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


KINDS: Final = BuiltIn(
    {
        "beds24": "forwarder.pms.kinds.beds24.adapter:Beds24Adapter",
        "booking-sync": "forwarder.pms.kinds.booking_sync.adapter:BookingSyncAdapter",
        "cloudbeds": "forwarder.pms.kinds.cloudbeds.adapter:CLOUDBEDS",
        "generic": "forwarder.pms.kinds.generic.kind:GENERIC",
        "hostaway": "forwarder.pms.kinds.hostaway.adapter:HostawayAdapter",
        "website-builder": "forwarder.pms.kinds.generic.website_builder:WebsiteBuilderAdapter",
    }
)


@cache
def registered() -> Registry:
    """The kinds of this process: `KINDS`, and those that other distributions bring; looked for once. What could not be loaded is
    logged."""
    registry = load_registry(KINDS)
    for fault in registry.not_loaded:
        _log.error("adapter.not_loaded", kind=fault.kind, distribution=fault.distribution, error=fault.error)
    return registry


def check_options(kind: str, options: Mapping[str, Any], registry: Registry | None = None) -> None:
    """Raises `UnknownKind`, and `BadOptions` where an account of that kind cannot have these."""
    there_are = registry or registered()
    if kind not in there_are.kinds:
        raise UnknownKind(there_are.missing(kind))
    try:
        there_are.kinds[kind].options.model_validate(options)
    except ValidationError as error:
        raise BadOptions("; ".join(_in_words(error))) from None


def _in_words(error: ValidationError) -> Sequence[str]:
    # Without the input: an option may be a secret that was put in the wrong place.
    details = error.errors(include_input=False, include_url=False)
    return [f"{'.'.join(map(str, detail['loc'])) or 'options'}: {detail['msg']}" for detail in details]
