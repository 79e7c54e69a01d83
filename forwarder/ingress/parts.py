"""The ports of the ingress, supplied by `assembly`, and its settings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forwarder.http.messages import Admission
from forwarder.oversight.audit import Audit
from forwarder.pms.port import Preview
from forwarder.process.clock import Clock
from forwarder.reservation.checks.card_numbers import CardNumbersInText
from forwarder.reservation.submission import RequestIds
from forwarder.tenancy.access import Access
from forwarder.tenancy.cards import CardSealer
from forwarder.tenancy.limits import RateLimits
from forwarder.tenancy.port import Account
from forwarder.topics.codec import MessageSigner
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Publisher

if TYPE_CHECKING:
    from forwarder.store.lists.reader import Reader


@dataclass(frozen=True, slots=True)
class IngressSettings:
    """`wait_seconds`: how long the general operation waits for an outcome unless the caller asks otherwise, with `Prefer: wait=N`
    for at most `max_wait_seconds`. `retry_after_seconds`: for responses without an outcome, and during outages. `body_seconds`: how
    long receiving a body may take. `max_in_flight`: submissions not yet acknowledged by the log, shared by the workspaces; at least
    six times the size of a bulk, so that one workspace's bulks leave room for another's. `max_keys_remembered`: idempotency keys
    until a worker has ingested them. `test_mode`: there is a simulator for test keys. `public_url`: scheme and host of links; empty
    for those of each request."""

    wait_seconds: float = 10.0
    max_wait_seconds: int = 60
    retry_after_seconds: int = 1
    body_seconds: float = 10.0
    max_in_flight: int = 6_000
    max_keys_remembered: int = 20_000
    test_mode: bool = False
    card_numbers_in_text: CardNumbersInText = "mask"
    public_url: str = ""


@dataclass(frozen=True, slots=True)
class IngressParts:
    """The ports of the ingress. `can_cancel`: whether an account's PMS supports cancellations. `preview`: the requests that its PMS
    would get; loads the adapters on first use. `limits`: those of API keys."""

    publisher: Publisher
    signer: MessageSigner
    requests_topic: str
    access: Access
    sealer: CardSealer
    ids: RequestIds
    reader: "Reader"
    outcomes: OutcomeListener
    clock: Clock
    can_cancel: Callable[[Account], bool]
    preview: Callable[[], Preview]
    limits: RateLimits
    audit: Audit
    admission: Admission
    settings: IngressSettings = IngressSettings()
