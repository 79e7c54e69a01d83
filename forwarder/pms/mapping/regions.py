"""Where the PMS of an account is, as far as its mapping says: at one address, or at one in each of some regions."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from forwarder.pms.adapter import AdapterKind
from forwarder.pms.mapping.format.model import PmsMapping
from forwarder.pms.mapping.format.parts import nearest
from forwarder.pms.mapping.kind import MappedKind
from forwarder.pms.port import BadOptions


class NoSuchPlace(BadOptions):
    """The mapping does not say where that is. The message says what would be right."""


def mapping_of(kind: AdapterKind | None, options: Mapping[str, Any]) -> PmsMapping | None:
    """The mapping by which an account of that kind, set so, is spoken to; None where code does, or where it cannot be read."""
    if isinstance(kind, MappedKind):
        return kind.mapping
    if kind is None or "mapping" not in options:
        return None
    try:
        given = kind.options.model_validate(options)
    except ValidationError:
        return None
    mapping = getattr(given, "mapping", None)
    return mapping if isinstance(mapping, PmsMapping) else None


def base_url_in(mapping: PmsMapping | None, region: str | None) -> str:
    """The base URL in that region, or the only one there is. Raises `NoSuchPlace`."""
    known = None if mapping is None else mapping.base_url
    if isinstance(known, Mapping):
        if region is None:
            raise NoSuchPlace(f"This PMS is in several regions: say in which by --region: {', '.join(known)}.")
        if region not in known:
            raise NoSuchPlace(f"There is no region {region!r}{nearest(region, known)}")
        return known[region]
    if region is not None:
        raise NoSuchPlace("This kind of PMS has no regions; leave out --region.")
    if known is None:
        raise NoSuchPlace("Say where the PMS is, by --base-url.")
    return known


def region_of(mapping: PmsMapping | None, base_url: str) -> str | None:
    """The region whose base URL that is; None for any other address."""
    known = None if mapping is None else mapping.base_url
    if not isinstance(known, Mapping):
        return None
    return next((region for region, address in known.items() if address.rstrip("/") == base_url.rstrip("/")), None)
