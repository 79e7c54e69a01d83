"""What sealed content is bound to: it stands inside the seal, and content that was moved elsewhere is not used there. Pure."""

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
    """An account's credential is for its PMS alone: for the origins of its base URL and of the addresses among its options, and in
    texts and tables among them: a mapping says where tokens are asked for."""
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
    """Whether `bound_to` is that submission's, whichever the PMS."""
    return bound_to.startswith(_binding("card", request_id, account_id)[:-1] + ",")


def of_grant(account_id: str, credential: str) -> str:
    """A grant is the account's, obtained with the credential of that digest."""
    return _binding("grant", account_id, credential)


def of_webhook_secret(endpoint_id: str) -> str:
    """A webhook's secret signs for it alone. Not bound to its URL: that is the customer's to change, and the secret does not go
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
