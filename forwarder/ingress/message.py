"""Builds the submission to publish from a valid request and the terms in its headers: identified, its card sealed and masked. Or
its dry run: the requests that the PMS would get, and the refusals of the integration's rules. No I/O."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic_core import from_json, to_json

from forwarder.http.messages import Admission, HttpRequest
from forwarder.http.parameters import parameters_of
from forwarder.ingress import responses
from forwarder.ingress.responses import CallerWarning, CardTextCheck, Losses
from forwarder.observability.tracing import TRACEPARENT, TRACESTATE, read_trace
from forwarder.oversight.audit import Audit
from forwarder.pms.accounts import traits_of
from forwarder.pms.port import BadOptions, Preview, Rehearsal, UnknownKind
from forwarder.process.clock import Clock, iso
from forwarder.reservation import problems as catalogue
from forwarder.reservation.booking import booking_of, refusal, refusals
from forwarder.reservation.checks.card_numbers import CardNumbersInText, digits_of, masked
from forwarder.reservation.checks.fields import Plausibility, Reading
from forwarder.reservation.fast import AnyRequest, UsualRequest, write_usual
from forwarder.reservation.outcome import Deferred, Rejected
from forwarder.reservation.problems import FieldFault, Problem
from forwarder.reservation.request import BookingEngineRequest, CardDetails, Operation, SealedCard
from forwarder.reservation.submission import (
    MAX_DEADLINE_SECONDS,
    NaturalKey,
    RequestIds,
    contents_of,
    fingerprint,
    key_of,
    transaction_of,
)
from forwarder.tenancy.access import Access, Caller, RateLimits
from forwarder.tenancy.port import Account
from forwarder.tenancy.sealing import CardSealer, of_card
from forwarder.topics.codec import MessageSigner, encode_submission
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Message, Publisher

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


_MAX_KEY_LENGTH: Final = 255
INVALID_KEY: Final = catalogue.INVALID_KEY.problem(
    f'The Idempotency-Key is one string in double quotes, such as "order-42", of 1 to {_MAX_KEY_LENGTH} printable ASCII '
    "characters; it may also come without the quotes."
)
INVALID_DEADLINE: Final = catalogue.INVALID_DEADLINE.problem(
    "The Forward-Deadline is one whole number of seconds in plain digits, such as 300, from 1 to "
    f"{MAX_DEADLINE_SECONDS}, and comes once."
)


class Terms(NamedTuple):
    """The terms in a submission's headers; None if not given. `deadline_seconds` count from its acceptance."""

    idempotency_key: str | None
    deadline_seconds: int | None
    trace: str | None


_TERM_FIELDS: Final = frozenset({b"idempotency-key", b"forward-deadline", TRACEPARENT.encode()})
_NO_TERMS: Final = Terms(None, None, None)


def read_terms(request: HttpRequest) -> Terms | Problem:
    if _TERM_FIELDS.isdisjoint(request.fields):
        return _NO_TERMS
    header = request.headers.get("idempotency-key")
    key = None if header is None else read_idempotency_key(header)
    if isinstance(key, Problem):
        return key
    if key is not None and len({line for name, line in request.scope["headers"] if name == b"idempotency-key"}) > 1:
        # Joined by a comma, they look like one.
        detail = "The header Idempotency-Key came more than once, with different values. Send one."
        return catalogue.INVALID_KEY.problem(detail)
    deadline = request.headers.get("forward-deadline")
    # No leading zero: some programs take 010 for eight. Two header lines are joined by a comma, and so refused.
    digits = deadline is None or re.fullmatch(r"[1-9][0-9]{0,17}", deadline.strip())
    seconds = int(deadline) if deadline is not None and digits else None
    if not digits or (seconds or 0) > MAX_DEADLINE_SECONDS:
        return INVALID_DEADLINE
    return Terms(key, seconds, read_trace(request.headers.get(TRACEPARENT), request.headers.get(TRACESTATE)))


def read_idempotency_key(header: str) -> str | Problem:
    """The key itself: `"order-42"` and `order-42` are the same."""
    key = header.strip()
    # RFC 8941 (3.3.3): printable ASCII in quotes; only the quote and the backslash are escaped.
    if quoted := re.fullmatch(r'"((?:[ !#-\[\]-~]|\\["\\])*)"', key):
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    elif not re.fullmatch(r"[!#-~][ !#-~]*", key):
        return INVALID_KEY
    return key if 1 <= len(key) <= _MAX_KEY_LENGTH else INVALID_KEY


class NewSubmission(NamedTuple):
    """A submission before it is on the log, with its request as JSON (`reservation`). `key`: the key of its message, which goes to
    `partition` if that is known. `keyed`: it has an idempotency key, so may have been sent before. `refused`: the refusal of a
    rule. Then it is not published, but may have been accepted before the account was changed or its card expired.
    `similar_refused`: refuse it if there is another for the same stay and guest. `warnings`: for the caller."""

    request_id: str
    workspace_id: str
    account_id: str
    operation: Operation
    accepted_at: str
    reservation: bytes
    fingerprint: str
    key: str
    keyed: bool
    card: SealedCard | None = None
    trace: str | None = None
    deadline_seconds: int | None = None
    natural: NaturalKey | None = None
    refused: Problem | None = None
    warnings: tuple[CallerWarning, ...] = ()
    partition: int | None = None
    similar_refused: bool = False
    api_key_id: str | None = None

    def message(self, accepted_at: str) -> Message:
        return encode_submission(self, accepted_at, self.reservation, self.partition)


@dataclass(frozen=True, slots=True)
class SubmissionBuilder:
    """Applies the rules of the account's kind, assigns the request id, seals the card. `partition`: of a key, if known."""

    ids: RequestIds
    sealer: CardSealer
    losses: Losses
    card_text: CardTextCheck = field(default_factory=CardTextCheck)
    partition: Callable[[str], int | None] = lambda _: None

    def build(
        self, caller: Caller, operation: Operation, read: Reading, terms: Terms, check: Plausibility, now: datetime
    ) -> NewSubmission | Problem:
        """The submission; or the problem of `check`, a text or a rule that refuses it, where it cannot have come before."""
        account, key = caller.account, terms.idempotency_key
        card = _card_of(read.request)
        checked = self.card_text.check(read.request, published_form(read.request, card), account.skipped_checks)
        request, reservation = checked.request, checked.published
        refused, traits = checked.refused, traits_of(account.kind)
        if refused is None and (faults := check.faults(read.request)):
            refused = responses.validation_failed(faults)
        concerned = card is not None or not traits.rooms or traits.website or traits.cards == "payment"
        if refused is None and concerned:  # rarely: it has to be parsed
            refused = refusal(traits, from_json(reservation), card, now)
        if refused is not None and key is None:
            return refused
        message_key = key_of(account.id, request.property_id)
        # A derived id is the same for every body under its key, and so cannot hold where one of them goes.
        partition = self.partition(message_key) if key is None else None
        request_id = self.ids.issue(account.id, now, partition) if key is None else self.ids.derive(account.id, key)
        sealed: SealedCard | None = None
        # A card of which nothing goes to the PMS is dropped here, and only its masked number is kept.
        used = card is not None and refused is None and any(value for _, value in card)
        if card is not None and used and traits.sends_card(from_json(reservation)):
            sealed = self.sealer.seal_card(card, of_card(request_id, account.id, account.base_url), now)
            if sealed is None:
                return catalogue.CARDS_UNAVAILABLE.problem(f"{responses.NOTHING_ACCEPTED}, or without the card.")
        canonical = canonical_form(request, reservation)
        # Distinguishes the card from others with the same masked number. Without a key nothing is compared.
        mark = b""
        if key is not None and card is not None and card.card_number:
            mark = self.ids.card_mark(account.id, key, digits_of(card.card_number))
        return NewSubmission(
            request_id=request_id,
            workspace_id=caller.workspace_id,
            account_id=account.id,
            operation=operation,
            accepted_at=iso(now),
            reservation=reservation,
            fingerprint=fingerprint(operation, canonical, mark),
            key=message_key,
            partition=partition,
            keyed=key is not None,
            card=sealed,
            trace=terms.trace,
            deadline_seconds=terms.deadline_seconds,
            similar_refused=account.similar == "refuse",
            natural=self._natural_key(account, operation, request, canonical, keyed=key is not None),
            refused=refused,
            warnings=(*checked.warnings, *self.losses.warnings(account, read)),
            api_key_id=caller.key_id,
        )

    def nth(self, submission: NewSubmission, alike: Counter[str]) -> NewSubmission:
        """The submission as one of several in a request, which `alike` counts: equal ones, with keys or not, are as many rooms."""
        natural = submission.natural
        if natural is None or natural.same is None:
            return submission
        alike[natural.same] += 1
        if (nth := alike[natural.same] - 1) == 0:
            return submission
        same = self.ids.content_key(submission.account_id, "same", b"%b\0%d" % (natural.same.encode(), nth))
        return submission._replace(natural=replace(natural, same=same))

    def _natural_key(
        self, account: Account, operation: Operation, request: AnyRequest, canonical: bytes, *, keyed: bool
    ) -> NaturalKey | None:
        """The content keys that identify a repeat; None if the account has no duplicate window and there is no transaction."""
        window_seconds, transaction = account.duplicate_window_seconds, transaction_of(request)
        if not (window_seconds or transaction):
            return None
        card_mark, card = b"", _card_of(request)
        if card is not None:
            # Two bytes (see `RequestIds.card_mark` for why so few): one of number and security code, one of the rest.
            secret = f"{digits_of(card.card_number or '')}\0{card.cvv or ''}"
            rest = f"{card.card_holder_name or ''}\0{card.expiry_month or ''}\0{card.expiry_year or ''}"
            card_mark = self.ids.card_mark(account.id, "", secret) + self.ids.card_mark(account.id, "", rest)
        booking, same, stay = contents_of(operation, request, canonical, card_mark)
        return NaturalKey(
            self.ids.content_key(account.id, "natural-key", booking),
            self.ids.content_key(account.id, "transaction", transaction.encode()) if transaction else None,
            window_seconds,
            keyed,
            same=(same_key := self.ids.content_key(account.id, "same", same)),
            stay=same_key if stay is None else self.ids.content_key(account.id, "stay", stay),
        )


def _card_of(request: AnyRequest) -> CardDetails | None:
    return request.card_details if isinstance(request, BookingEngineRequest) else None


def published_form(request: AnyRequest, card: CardDetails | None) -> bytes:
    """The request as JSON: fields in a fixed order, values as received, nulls omitted; only the masked number of the card."""
    if isinstance(request, UsualRequest):
        return write_usual(request)
    if card is None:
        return request.model_dump_json(by_alias=True, exclude_none=True).encode()
    rest = request.model_dump_json(by_alias=True, exclude_none=True, exclude={"card_details"}).encode()
    shown = {} if card.card_number is None else {"cardNumber": masked(card.card_number)}
    return rest[:-1] + b',"cardDetails":' + to_json(shown) + b"}"


def canonical_form(request: AnyRequest, published: bytes) -> bytes:
    """The same bytes for all requests that mean the same: numbers are text in the fields that take either, since 1 there is "1"."""
    for name, given in (
        (b"propertyId", request.property_id),
        (b"roomId", request.room_id),
        (b"paymentProviderId", request.payment_provider_id),
        (b"phone", request.guest.phone),
        (b"arrivalEstimatedTime", request.arrival_estimated_time),
        (b"departureEstimatedTime", request.departure_estimated_time),
    ):
        if given is not None and not isinstance(given, str):
            # No text has such a member in it: its quotes would be escaped.
            number = to_json(given)
            published = published.replace(b'"%b":%b' % (name, number), b'"%b":"%b"' % (name, number))
    return published


DRY_RUN: Final = "dryRun"  # the query parameter


def asks_for_dry_run(request: HttpRequest) -> bool | Problem:
    """Whether the query has `dryRun=true`; the problem if the value is invalid."""
    if not request.scope["query_string"]:
        return False
    given = set(parameters_of(request.scope).get(DRY_RUN, ("false",)))
    if given in ({"true"}, {"false"}):
        return "true" in given
    code, detail = "invalid_value", "must be true or false"
    if len(given) > 1:
        code, detail = "contradictory", "is given more than once, with different values"
    return catalogue.INVALID_QUERY.problem(f"dryRun {detail}.", faults=(FieldFault("/dryRun", code, detail),))


@dataclass(frozen=True, slots=True)
class DryRun:
    """`refused`: the refusals of all rules, and any other certain obstacle. `rehearsal`: what would be sent, else."""

    account: Account
    refused: tuple[Problem, ...]
    warnings: tuple[CallerWarning, ...] = ()
    rehearsal: Rehearsal | None = None

    def as_json(self) -> dict[str, Any]:
        """`accountPaused`: a submission would wait until the account is resumed."""
        shown = [
            {"method": request.method, "path": request.path, "mediaType": request.media_type, "body": request.body}
            for request in (self.rehearsal.requests if self.rehearsal else ())
        ]
        would_send = self.rehearsal and {"requests": shown, "assumed": list(self.rehearsal.assumed)}
        return {
            "dryRun": True,
            "accountKind": self.account.kind,
            "accountPaused": self.account.paused,
            "wouldSend": would_send,
            "refusals": [problem.as_json() for problem in self.refused],
            "warnings": [warning._asdict() for warning in self.warnings],
        }


async def dry_run(
    builder: SubmissionBuilder, preview: Preview, account: Account, read: Reading, check: Plausibility, now: datetime
) -> DryRun | Problem:
    """Applies the account's rules to `read`, and adds the requests that would be sent, or the obstacle that is sure to prevent
    them. Or returns the problem that precludes the rules. Calls no PMS."""
    card = _card_of(read.request)
    checked = builder.card_text.check(read.request, published_form(read.request, card), account.skipped_checks)
    if faults := check.faults(read.request):
        return responses.validation_failed(faults)
    if checked.refused:
        return checked.refused
    reservation, traits = from_json(checked.published), traits_of(account.kind)
    refused = tuple(refusals(traits, reservation, card, now))
    tried = DryRun(account, refused, (*checked.warnings, *builder.losses.warnings(account, read)))
    if refused:
        return tried
    try:
        booking = booking_of(traits, "the-request-id", reservation, card)  # a dry run has none
        rehearsal = await preview.rehearse(responses.connection_to(account), booking)
    except (UnknownKind, BadOptions) as error:
        why = str(error)
    else:
        match rehearsal.outcome:
            case Rejected(problem=problem):
                return replace(tried, refused=(replace(problem, request_id=None),))
            case Deferred(detail=why):
                pass
            case _:
                return replace(tried, rehearsal=rehearsal)
    failing = f"As the account is set now, this would wait, and fail at its deadline. {why}"
    return replace(tried, refused=(catalogue.DELIVERY_FAILED.problem(failing),))
