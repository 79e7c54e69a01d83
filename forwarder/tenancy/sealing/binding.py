"""The bindings of sealed content: a binding is part of the sealed text, so that content moved elsewhere is not used there. Pure."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic_core import to_json

from forwarder.tenancy.port import Account, Sealer

_ADDRESS: Final = re.compile(r"[a-z]+://[^\s\"'<>{},]+", re.IGNORECASE)
_SPACE: Final = re.compile(r"\s")
_PORTS: Final = {"http": 80, "https": 443}


def with_credential(account: Account, credential: str, sealer: Sealer) -> Account:
    """The account with this credential, sealed."""
    return replace(account, credential=sealer.seal_text(credential, of_credential(account)))


def of_credential(account: Account) -> str:
    """Binds an account's credential to its PMS: to the origins of its base URL and of all URLs in its options, nested ones
    included, because a mapping contains the token endpoint."""
    addresses = {origin_of(address) for address in _addresses(dict(account.options))}
    return _binding("credential", account.id, origin_of(account.base_url), *sorted(addresses))


def _addresses(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for part in value.values():
                yield from _addresses(part)
        case list() | tuple():
            for part in value:
                yield from _addresses(part)
        case str() if "://" in value:
            yield from _ADDRESS.findall(value) if _SPACE.search(value) else [value]


def of_client_key(account_id: str) -> str:
    """A client certificate's key is its account's. It is used at the account's addresses, and never sent anywhere."""
    return _binding("client-key", account_id)


def of_card(request_id: str, account_id: str, base_url: str) -> str:
    """A card is its submission's, for the PMS that its account had then."""
    return _binding("card", request_id, account_id, origin_of(base_url))


def is_card_of(bound_to: str, request_id: str, account_id: str) -> bool:
    """Whether `bound_to` is that submission's, for any PMS."""
    return bound_to.startswith(_binding("card", request_id, account_id)[:-1] + ",")


def of_grant(account_id: str, credential: str) -> str:
    """A grant is the account's, obtained with the credential of that digest."""
    return _binding("grant", account_id, credential)


def of_webhook_secret(endpoint_id: str) -> str:
    """Binds a webhook's secret to the webhook; not to its URL, because customers may change that, and the secret is not sent
    there."""
    return _binding("webhook", endpoint_id)


def origin_of(url: str) -> str:
    """Scheme, host and port, in one spelling."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.hostname or ''}:{port or ''}"


def _binding(*parts: str) -> str:
    return to_json(parts).decode()
