"""Secrets of a deployment, the keys derived from them, and texts and cards sealed with these. No I/O.

A deployment has one active secret, and earlier ones that it still opens with. Texts are in sealed boxes (X25519,
XSalsa20-Poly1305): anyone with the public key can seal, only the holder of the private one can open. A sealed text is
`KEYID.BASE64`; the sealed content is the binding, then the text: content that is moved elsewhere is not used there.

Cards are sealed twice. On the topic: to a short-lived key pair (sealed box), whose private half is destroyed once every card sealed
to it has been ingested. In a row: under random keys of the row (XChaCha20-Poly1305), one for the security code and one for the
rest, which are destroyed when they are no longer needed. Both authenticate the card's binding."""

import base64
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from nacl.exceptions import BadSignatureError, CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox
from nacl.secret import Aead
from nacl.signing import SigningKey, VerifyKey
from pydantic import ValidationError
from pydantic_core import from_json, to_json

from forwarder.process.clock import iso
from forwarder.reservation.request import CardDetails, SealedCard
from forwarder.tenancy.port import Account, CannotOpen, NotBound, Sealer

# BLAKE2b's personalisation keeps keys of one secret apart: 16 bytes at the most.
_SIGNING, _ACCOUNTS = b"forwarder-sign-1", b"forwarder-acct-1"
_WEBHOOKS, _WRAPPING = b"forwarder-hook-1", b"forwarder-wrap-1"


class NotTrusted(ValueError):
    """Public keys that no trusted secret signed: who put them into the store could open content sealed to them."""


def key_id_of(public_key: bytes) -> str:
    return blake2b(public_key, digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class KeyPair:
    """An X25519 key to seal and to open with. `key_id` is a hash of its public half."""

    key_id: str
    public_key: bytes
    private_key: bytes = field(repr=False)

    @classmethod
    def of(cls, private_key: bytes) -> Self:
        public = bytes(PrivateKey(private_key).public_key)
        return cls(key_id_of(public), public, private_key)

    @classmethod
    def new(cls) -> Self:
        return cls.of(bytes(PrivateKey.generate()))


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """The public part of a secret. `secret_id` is a hash of its verify key, so that a mistyped secret is detected."""

    secret_id: str
    verify_key: bytes
    accounts_key: bytes
    webhooks_key: bytes
    signature: bytes

    def require_trusted(self, trusted: Collection[bytes]) -> None:
        """Raise `NotTrusted` unless these are what the holder of a secret with one of the `trusted` verify keys signed."""
        if self.verify_key not in trusted or key_id_of(self.verify_key) != self.secret_id:
            theirs = f"The keys of the secret {self.secret_id} in the database"
            raise NotTrusted(f"{theirs} are not signed by one that is trusted here.")
        require_signed(self.verify_key, _signed(self.accounts_key, self.webhooks_key), self.signature)


@dataclass(frozen=True, slots=True)
class Secret:
    """A deployment's secret as the keys that are derived from it: always the same ones, and as hard to guess as it is."""

    id: str
    verify_key: bytes
    accounts: KeyPair
    webhooks: KeyPair
    wrapping_key: bytes = field(repr=False)
    _signing_key: bytes = field(repr=False)

    @classmethod
    def from_text(cls, secret: str) -> Self:
        seed = _derived(secret, _SIGNING)
        verify_key = bytes(SigningKey(seed).verify_key)
        accounts, webhooks = (KeyPair.of(_derived(secret, purpose)) for purpose in (_ACCOUNTS, _WEBHOOKS))
        return cls(key_id_of(verify_key), verify_key, accounts, webhooks, _derived(secret, _WRAPPING), seed)

    def sign(self, content: bytes) -> bytes:
        return SigningKey(self._signing_key).sign(content).signature

    def public_keys(self) -> PublicKeys:
        keys = (self.accounts.public_key, self.webhooks.public_key)
        return PublicKeys(self.id, self.verify_key, *keys, self.sign(_signed(*keys)))


def require_signed(verify_key: bytes, content: bytes, signature: bytes) -> None:
    """Raise `NotTrusted` unless the holder of the verify key's secret signed `content`."""
    try:
        VerifyKey(verify_key).verify(content, signature)
    except (BadSignatureError, ValueError):
        raise NotTrusted(f"A key in the database is not signed by the secret {key_id_of(verify_key)}.") from None


def _signed(accounts_key: bytes, webhooks_key: bytes) -> bytes:
    return to_json(["public-keys", accounts_key.hex(), webhooks_key.hex()])


def _derived(secret: str, purpose: bytes) -> bytes:
    return blake2b(secret.encode(), digest_size=32, person=purpose).digest()


class PublicKeySealer:
    def __init__(self, public_key: bytes) -> None:
        self.key_id = key_id_of(public_key)
        self._box = SealedBox(PublicKey(public_key))

    def seal_text(self, text: str, bound_to: str) -> str:
        return f"{self.key_id}.{_base64(self._box.encrypt(to_json([bound_to, text])))}"


class KeyPairUnsealer:
    def __init__(self, pairs: Iterable[KeyPair]) -> None:
        self._boxes = {pair.key_id: SealedBox(PrivateKey(pair.private_key)) for pair in pairs}

    def open_text(self, sealed: str, bound_to: str) -> str:
        key_id, _, content = sealed.partition(".")
        if (box := self._boxes.get(key_id)) is None:
            raise CannotOpen(f"Sealed with the key {key_id!r}, which none of the secrets given here makes.")
        try:
            opened = box.decrypt(base64.b64decode(content, validate=True))
        except (CryptoError, ValueError) as error:
            raise CannotOpen(f"Sealed with the key {key_id!r}, and damaged since.") from error
        try:
            found, text = from_json(opened)
        except (ValueError, TypeError) as error:
            raise CannotOpen("What was sealed is not a text.") from error
        if found != bound_to:
            raise NotBound(f"It was sealed for {found}, and is used for {bound_to}.")
        return str(text)


class UnknownSecret(RuntimeError):
    """This process has a secret that its deployment does not know, or lacks one that it needs."""


class SecretState(StrEnum):
    """The use of a secret. The active one seals, one at a time; an accepted one only opens: it was active before, or will be."""

    ACTIVE = "active"
    ACCEPTED = "accepted"
    RETIRED = "retired"


@dataclass(frozen=True, slots=True)
class KnownSecret:
    keys: PublicKeys
    state: SecretState
    created_at: datetime
    activated_at: datetime | None

    @property
    def id(self) -> str:
        return self.keys.secret_id

    @property
    def needed(self) -> bool:
        """Whether there may be content that only its holder can open."""
        was_active = self.state is SecretState.ACCEPTED and self.activated_at is not None
        return self.state is SecretState.ACTIVE or was_active


def active_of(known: Collection[KnownSecret]) -> KnownSecret | None:
    """The active secret; None on a new database."""
    return next((each for each in known if each.state is SecretState.ACTIVE), None)


def check_secrets(held: Sequence[Secret], known: Sequence[KnownSecret]) -> None:
    """Raises `UnknownSecret` unless each of `held` is known, and each needed one is held. The message names both."""
    active, by_id = active_of(known), {each.id: each for each in known}
    used = "none yet: run `forwarder migrate`" if active is None else active.id
    for secret in held:
        if secret.id not in by_id:
            raise UnknownSecret(
                f"The secret {secret.id} is unknown to this deployment, which uses {used}. Was it mistyped, or is this another "
                "deployment's database? To add a new secret, keep the known one in FORWARDER_EARLIER_SECRET_KEYS and run "
                "`forwarder secret add`."
            )
        # A database that has another key under this secret's id is not ours.
        by_id[secret.id].keys.require_trusted({secret.verify_key})
    missing = [each.id for each in known if each.needed and each.id not in {secret.id for secret in held}]
    if missing:
        raise UnknownSecret(
            f"The secret {missing[0]} is missing: this deployment has sealed to it. Given here: "
            f"{', '.join(secret.id for secret in held)}. Name it in FORWARDER_SECRET_KEY or FORWARDER_EARLIER_SECRET_KEYS, or move "
            "all that is sealed to it elsewhere: `forwarder secret reseal`, then `retire`."
        )


class Resealed(NamedTuple):
    """`moved` pieces are sealed to the active secret now; `failed` could not be opened, and stay as they are."""

    moved: int
    failed: int


class Keyring(KeyPairUnsealer):
    """A process's secrets, one of them active. Seals credentials and grants, opens all texts; wraps the keys of cards."""

    def __init__(self, held: Sequence[Secret]) -> None:
        self.held, self.active = {secret.id: secret for secret in held}, held[0]
        super().__init__(pair for each in held for pair in (each.accounts, each.webhooks))

    def activate(self, secret_id: str) -> None:
        """Seals to this secret from now on; ignores one that this process does not hold."""
        self.active = self.held.get(secret_id, self.active)

    def seal_text(self, text: str, bound_to: str) -> str:
        return PublicKeySealer(self.active.accounts.public_key).seal_text(text, bound_to)

    def wrap(self, key: bytes, purpose: str, secret_id: str | None = None) -> "WrappedKey":
        """The key, for the holder of this secret only; by default the active one."""
        secret = self.active if secret_id is None else self.held[secret_id]
        return WrappedKey(secret.id, _base64(Aead(secret.wrapping_key).encrypt(key, purpose.encode())))

    def unwrap(self, wrapped: "WrappedKey", purpose: str) -> bytes:
        """The key. Raises `CannotOpen` without that secret, `NotBound` where it was wrapped for something else or is damaged."""
        if (secret := self.held.get(wrapped.secret_id)) is None:
            raise CannotOpen(f"It needs the secret {wrapped.secret_id}, which is not given here.")
        try:
            return Aead(secret.wrapping_key).decrypt(base64.b64decode(wrapped.content, validate=True), purpose.encode())
        except (CryptoError, ValueError):
            raise NotBound(f"A key was wrapped for another purpose than {purpose!r}, or is damaged.") from None


class WrappedKey(NamedTuple):
    """A key that only the holder of the secret `secret_id` can use. `content` is text."""

    secret_id: str
    content: str


_IN_ROW: Final = "row"  # the key id of a card that is sealed under its row's own keys
NUMBER_PURPOSE: Final = "card-number"
CODE_PURPOSE: Final = "card-code"
"""The purposes that a row's keys are wrapped for; the request id is appended."""
GONE: Final = SealedCard("gone", "")  # replaces a card whose key was destroyed
UNBOUND: Final = SealedCard("unbound", "")  # replaces a card that was sealed for another submission


@dataclass(frozen=True, slots=True)
class SealingKey:
    """The public half of a short-lived key pair, signed. It is sealed to from `not_before` until `not_after`."""

    key_id: str
    public_key: bytes
    not_before: datetime
    not_after: datetime
    verify_key: bytes
    signature: bytes

    @classmethod
    def signed_by(cls, secret: Secret, pair: KeyPair, not_before: datetime, not_after: datetime) -> "SealingKey":
        signature = secret.sign(_content_of(pair.public_key, not_before, not_after))
        return cls(pair.key_id, pair.public_key, not_before, not_after, secret.verify_key, signature)

    def require_trusted(self, trusted: Collection[bytes]) -> None:
        """Raise `NotTrusted` unless a secret with one of the `trusted` verify keys signed it."""
        if self.verify_key not in trusted:
            raise NotTrusted(f"The key {self.key_id} in the database is not signed by a secret that is trusted here.")
        require_signed(self.verify_key, _content_of(self.public_key, self.not_before, self.not_after), self.signature)


class CardSealer:
    """Seals to whichever of the keys in use is valid at the moment."""

    def __init__(self, keys: Iterable[SealingKey] = ()) -> None:
        self.use(keys)

    def use(self, keys: Iterable[SealingKey]) -> None:
        in_order = sorted(keys, key=lambda key: key.not_before)
        self._keys = [(key, SealedBox(PublicKey(key.public_key))) for key in in_order]

    def seal_card(self, card: CardDetails, bound_to: str, now: datetime) -> SealedCard | None:
        """The sealed card, bound to `bound_to` (see `sealing.binding`); None if no key is valid at `now`."""
        for key, box in self._keys:
            if key.not_before <= now < key.not_after:
                return SealedCard(key.key_id, _base64(box.encrypt(to_json([bound_to, card.model_dump(by_alias=True)]))))
        return None


def open_from_topic(card: SealedCard, private_key: bytes) -> tuple[str, CardDetails]:
    """The binding and the card. Raises `CannotOpen`."""
    try:
        opened = SealedBox(PrivateKey(private_key)).decrypt(base64.b64decode(card.sealed, validate=True))
        bound_to, content = from_json(opened)
        return str(bound_to), CardDetails.model_validate(content)
    except (CryptoError, ValidationError, ValueError, TypeError):
        # Without its cause, which could quote the card.
        raise CannotOpen(f"Sealed to the key {card.key_id!r}, and damaged since.") from None


def is_sealed_to_topic(card: SealedCard) -> bool:
    return card.key_id != _IN_ROW and card not in (GONE, UNBOUND)


class RowKeys(NamedTuple):
    """The keys of a row's card: of its security code, None if it has none or the key was destroyed, and of the rest."""

    number: bytes
    code: bytes | None


def seal_for_row(card: CardDetails, bound_to: str) -> tuple[SealedCard, RowKeys]:
    keys, code = RowKeys(secrets.token_bytes(Aead.KEY_SIZE), None), ""
    if card.cvv is not None:
        keys = keys._replace(code=(code_key := secrets.token_bytes(Aead.KEY_SIZE)))
        code = _base64(Aead(code_key).encrypt(card.cvv.encode(), bound_to.encode()))
    rest = card.model_dump_json(by_alias=True, exclude={"cvv"}).encode()
    return SealedCard(_IN_ROW, f"{_base64(Aead(keys.number).encrypt(rest, bound_to.encode()))}.{code}"), keys


def has_code(card: SealedCard) -> bool:
    """Whether the card of a row came with a security code."""
    return card.key_id == _IN_ROW and not card.sealed.endswith(".")


def open_in_row(card: SealedCard, keys: RowKeys, bound_to: str) -> CardDetails:
    """The card, with its security code if there is still a key for it. Raises `NotBound` where it was moved or changed."""
    number, _, code = card.sealed.partition(".")
    try:
        rest = from_json(Aead(keys.number).decrypt(base64.b64decode(number, validate=True), bound_to.encode()))
        if keys.code is not None and code:
            rest["cvv"] = Aead(keys.code).decrypt(base64.b64decode(code, validate=True), bound_to.encode()).decode()
        return CardDetails.model_validate(rest)
    except (CryptoError, ValidationError, ValueError, TypeError):
        raise NotBound("The card was sealed for another submission, account or PMS, or changed since.") from None


def _content_of(public_key: bytes, not_before: datetime, not_after: datetime) -> bytes:
    return to_json(["sealing-key", public_key.hex(), iso(not_before), iso(not_after)])


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


_ADDRESS: Final = re.compile(r"[a-z]+://[^\s\"'<>{},]+", re.IGNORECASE)


def with_credential(account: Account, credential: str, sealer: Sealer) -> Account:
    return replace(account, credential=sealer.seal_text(credential, of_credential(account)))


def of_credential(account: Account) -> str:
    """Binds a credential to the origins of its base URL and all URLs in its options; mappings have the token endpoint."""
    addresses = {origin_of(address) for address in _addresses(dict(account.options))}
    return _binding("credential", account.id, origin_of(account.base_url), *sorted(addresses))


def _addresses(value: Any) -> Iterator[str]:
    match value:
        case dict() | list() | tuple():
            for part in value.values() if isinstance(value, dict) else value:
                yield from _addresses(part)
        case str() if "://" in value:
            yield from _ADDRESS.findall(value) if re.search(r"\s", value) else [value]


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
    """Binds a webhook's secret to the webhook; not to its URL, which customers may change: the secret is not sent there."""
    return _binding("webhook", endpoint_id)


def of_webhook_headers(endpoint_id: str, url: str) -> str:
    """Binds a webhook's headers to the webhook and to the host that they are sent to."""
    return _binding("webhook-headers", endpoint_id, origin_of(url))


def origin_of(url: str) -> str:
    """Scheme, host and port, in one spelling."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.hostname or ''}:{port or ''}"


def _binding(*parts: str) -> str:
    return to_json(parts).decode()
