"""API keys: their terms (scopes, expiry, networks), parsed from operators' input and formatted for storage; and their tokens. Pure.

A token ends in a MAC by a key that the processes of a deployment share. So guesses are recognized without a look-up, and a flood of
them never reaches the database. The MAC grants nothing: only a token whose hash is stored does."""

import base64
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, Literal, TypeAlias, get_args

from forwarder.process.addresses import read_address

Scope: TypeAlias = Literal["submit", "read", "cancel", "webhooks", "operate"]
Scopes: TypeAlias = frozenset[Scope]
Network: TypeAlias = IPv4Network | IPv6Network
SCOPES: Final[Sequence[Scope]] = get_args(Scope)
ALL_SCOPES: Final[Scopes] = frozenset(SCOPES)
DEFAULT_SCOPES: Final[Scopes] = frozenset({"submit", "read", "cancel"})
"""The scopes of a booking engine."""

_DAYS: Final = re.compile(r"([1-9][0-9]{0,4})d")
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def read_scopes(words: Iterable[str]) -> Scopes:
    """The scopes that are named, several in one word with commas between. Raises `ValueError` with what would be right."""
    named = frozenset(name for word in words for name in word.split(",") if name)
    known = frozenset(scope for scope in SCOPES if scope in named)
    unknown = sorted(named - known)
    if unknown or not known:
        what = f"{unknown[0]!r} is no scope" if unknown else "a key needs a scope"
        raise ValueError(f"{what}: name one or several of {', '.join(SCOPES)}.")
    return known


def write_scopes(scopes: Scopes) -> str:
    """The scopes in a fixed order, separated by spaces, as stored and shown."""
    return " ".join(scope for scope in SCOPES if scope in scopes)


def read_expiry(text: str, now: datetime) -> datetime | None:
    """The moment that `90d`, a day or a moment means, None for `never`. A day ends in UTC. Raises `ValueError` with what would be
    right."""
    if text == "never":
        return None
    try:
        if days := _DAYS.fullmatch(text):
            expires_at = now + timedelta(days=int(days[1]))
        elif _DAY.fullmatch(text):
            expires_at = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(days=1)
        else:
            expires_at = _with_offset(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no expiry: write 90d for days from now, a day as 2031-12-31, a moment with its offset as "
            "2031-12-31T12:00:00Z, or never."
        ) from None
    if expires_at <= now:
        raise ValueError(f"{text!r} is past: the key would never work. To end a key now, revoke it.")
    return expires_at


def _with_offset(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError("no offset")
    return moment.astimezone(UTC)


def read_networks(words: Iterable[str]) -> tuple[Network, ...]:
    """The networks that are named, several in one word with commas between; none for `any`. Raises `ValueError` with what would be
    right."""
    named = [name for word in words for name in word.split(",") if name]
    if named == ["any"]:
        return ()
    try:
        return tuple(dict.fromkeys(ip_network(name) for name in named))
    except ValueError as error:
        raise ValueError(
            f"{error}. Write an address or a network in CIDR notation, such as 203.0.113.0/24 or 2001:db8::/32, or any."
        ) from None


def write_networks(networks: Sequence[Network]) -> str:
    """The networks separated by spaces, as stored."""
    return " ".join(map(str, networks))


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Whether the address is in any of these networks; False if it is not an IP address."""
    read = read_address(address)
    return read is not None and any(read in network for network in networks)


# Prefixes, so that leaked tokens are easy to recognize.
_LIVE_PREFIX: Final = "fwd_live_"
_TEST_PREFIX: Final = "fwd_test_"
_KEY_PREFIX: Final = "key_"
_MAC_BYTES: Final = 9
_MAC_LENGTH: Final = 12
"""The length of the MAC in base64."""


def new_token(mac_key: bytes, *, test: bool = False) -> str:
    """A token with 32 random bytes, and the prefix of a live or test key."""
    head = (_TEST_PREFIX if test else _LIVE_PREFIX) + secrets.token_urlsafe(32)
    return head + _mac(mac_key, head)


def may_be_ours(mac_key: bytes, token: str) -> bool:
    """Whether this deployment may have made the token. If not, the token is unknown without a look-up."""
    head, mac = token[:-_MAC_LENGTH], token[-_MAC_LENGTH:]
    return hmac.compare_digest(mac.encode(), _mac(mac_key, head).encode())


def is_test_token(token: str) -> bool:
    """Whether it has a test key's prefix. Trustworthy once its hash, which covers the prefix, is known."""
    return token.startswith(_TEST_PREFIX)


def new_key_id() -> str:
    """An identifier for a key. It grants nothing."""
    return _KEY_PREFIX + secrets.token_hex(6)


def token_hash(token: str) -> str:
    """The stored hash of a token."""
    return sha256(token.encode()).hexdigest()


def _mac(mac_key: bytes, head: str) -> str:
    mac = hmac.digest(mac_key, head.encode(), "sha256")[:_MAC_BYTES]
    return base64.urlsafe_b64encode(mac).decode()
