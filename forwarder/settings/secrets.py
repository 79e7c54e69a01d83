"""The secrets and keys that a process is given, by purpose."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log2
from typing import Final

from forwarder.process.addresses import is_local
from forwarder.settings.backend import Distributed, Embedded
from forwarder.settings.environment import BadSettings, Environment, secret

_KEY_BYTES: Final = 32
_MIN_LENGTH: Final = 16
"""For an earlier secret. The current one needs twice as many characters (`FORWARDER_SECRET_KEY`)."""

_MIN_BITS: Final = 80.0
"""Random text of 32 hexadecimal digits has 116 as `_bits` counts, and one in 100,000 has 92."""

_PUBLISHED: Final = "DEVELOPMENT-ONLY"
"""The prefix of the secrets published in this project's documentation and examples."""


@dataclass(frozen=True, slots=True)
class GivenSecrets:
    """`present` seals; `earlier` are the deployment's other secrets. A process without a secret may have `notifier_keys`, and
    `verify_keys` to decide which public keys to trust."""

    present: str | None = field(repr=False)
    earlier: Sequence[str] = field(repr=False)
    notifier_keys: Sequence[bytes] = field(repr=False)
    verify_keys: Sequence[bytes]


def given_secrets(environment: Environment, backend: Embedded | Distributed) -> GivenSecrets:
    """The secrets and keys that were given. Raises `BadSettings`, which quotes none of them: for a malformed key, and for a
    published secret if other machines can reach what it protects."""
    present, earlier = secret(environment.secret_key), secret_lines(secret(environment.earlier_secret_keys))
    if any(each.startswith(_PUBLISHED) for each in (present or "", *earlier)):
        _require_loopback(environment, backend)
    elif present is not None and _bits(present) < _MIN_BITS:
        raise BadSettings(
            "FORWARDER_SECRET_KEY is too repetitive, and can be guessed by brute force from a copy of the database. "
            "`forwarder secret generate` makes a strong one."
        )
    return GivenSecrets(
        present,
        earlier,
        read_keys("FORWARDER_NOTIFIER_KEY", (secret(environment.notifier_key) or "").splitlines()),
        read_keys("FORWARDER_SEALING_VERIFY_KEY", (environment.sealing_verify_key or "").split(",")),
    )


def secret_lines(text: str | None) -> Sequence[str]:
    """The secrets in `text`, one a line. Raises `BadSettings`."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    if any(len(line) < _MIN_LENGTH for line in lines):
        raise BadSettings(f"FORWARDER_EARLIER_SECRET_KEYS: each line must have at least {_MIN_LENGTH} characters.")
    return lines


def read_keys(name: str, texts: Iterable[str]) -> Sequence[bytes]:
    """Keys of 32 bytes, each written as 64 hexadecimal digits. Raises `BadSettings`."""
    try:
        keys = [bytes.fromhex(text.strip()) for text in texts if text.strip()]
    except ValueError:
        keys = [b""]
    if any(len(key) != _KEY_BYTES for key in keys):
        raise BadSettings(f"{name}: a key has {2 * _KEY_BYTES} hexadecimal digits.")
    return keys


def _bits(text: str) -> float:
    """An upper bound on the entropy in bits, from character frequencies (Shannon); words have less. A repeated text counts once."""
    text = text[: (text + text).find(text, 1)]
    return sum(count * log2(len(text) / count) for count in Counter(text).values())


def _require_loopback(environment: Environment, backend: Embedded | Distributed) -> None:
    hosts = [environment.host]
    if isinstance(backend, Distributed):
        hosts += backend.hosts
    away = [host for host in hosts if not is_local(host)]
    if away:
        raise BadSettings(
            f"FORWARDER_SECRET_KEY is one that is published, for development on one machine, and {away[0]} is not on it. "
            "`forwarder secret generate` makes a private one."
        )
