"""What the ingress is made of: its ports, put in place by `assembly`, and its settings."""

from collections.abc import Callable
from dataclasses import dataclass

from forwarder.http.admission import Admission
from forwarder.operations.audit import Audit
from forwarder.pms.port import Preview
from forwarder.process.clock import Clock
from forwarder.reservation.checks.card_numbers import CardNumbersInText
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import Reader
from forwarder.tenancy.access import Access
from forwarder.tenancy.limits import RateLimits
from forwarder.tenancy.port import Account, CardSealer
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Publisher
from forwarder.topics.signing import MessageSigner


@dataclass(frozen=True, slots=True)
class IngressSettings:
    """How long the ingress waits, and how much it holds at one time.

    `wait_seconds`: how long the general operation waits for an outcome when the caller does not say.
    `max_wait_seconds`: the most that `Prefer: wait=N` is given.
    `retry_after_seconds`: when callers should come again, for an outcome or because something is away.
    `body_seconds`: how long a body may take to come.
    `max_in_flight`: submissions handed to the log and not yet acknowledged, of which each workspace has its share; at least six
    times as many as a bulk has, so that one workspace's bulks leave room for another's. `max_keys_remembered`: idempotency keys of
    which the payload is remembered until the worker has taken it in. `test_mode`: whether there is a simulator for test keys.
    `card_numbers_in_text`: what becomes of them. `public_url`: scheme and host by which callers come; empty for those that each of
    them wrote.
    """

    wait_seconds: float = 10.0
    max_wait_seconds: int = 60
    retry_after_seconds: int = 1
    body_seconds: float = 10.0
    max_in_flight: int = 6_000
    max_keys_remembered: int = 20_000
    test_mode: bool = False
    card_numbers_in_text: CardNumbersInText = "refuse"
    public_url: str = ""


@dataclass(frozen=True, slots=True)
class IngressParts:
    """The ports of the ingress, and the `admission` of its process. `requests_topic` is where submissions go, signed. `can_cancel`:
    whether an account's PMS takes cancellations. `preview`: what an account's PMS would be asked; adapters are loaded with the
    first use. `limits` are those of API keys."""

    publisher: Publisher
    signer: MessageSigner
    requests_topic: str
    access: Access
    sealer: CardSealer
    ids: RequestIds
    reader: Reader
    outcomes: OutcomeListener
    clock: Clock
    can_cancel: Callable[[Account], bool]
    preview: Callable[[], Preview]
    limits: RateLimits
    audit: Audit
    admission: Admission
    settings: IngressSettings = IngressSettings()

    def partition(self, key: str) -> int | None:
        """Where messages with `key` go on the requests topic, as far as that is known."""
        return self.publisher.partition(self.requests_topic, key)
