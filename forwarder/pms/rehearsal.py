"""Dry runs: the requests that an adapter would make, written by its own code and sent to nobody.

Only the account's kind and options are known: placeholders replace its sealed credential and access tokens. A step that waits for
the PMS's answer continues with the stand-in that the adapter provides (`RehearsingAdapter`); without one the dry run ends there.
Everything in a request that would change with another card is masked.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qsl, quote, quote_plus, urlsplit

from pydantic_core import from_json

from forwarder.pms import sdk
from forwarder.pms.http.client import destination_of
from forwarder.pms.port import BadOptions, LentGrant, Loss, Rehearsal, ShownRequest, UnknownKind
from forwarder.pms.registry import Registry, check_options, registered
from forwarder.reservation.checks.card_numbers import digits_of, masked

CREDENTIAL: Final = "the-credential:is-withheld"
"""Placeholder for every credential, in the form user:password, which some adapters require."""

_HIDDEN: Final = "***"
_OTHER_CARDS: Final = [
    sdk.CardDetails.model_validate(
        {"cardNumber": number, "cardHolderName": holder, "expiryMonth": month, "expiryYear": year, "cvv": cvv}
    )
    for number, holder, month, year, cvv in (
        ("5555555555554444", "Another Holder", "11", "2099", "112"),
        ("378282246310005", "Third Person", "10", "2098", "2213"),
    )
]
WITHHELD: Final = LentGrant(sdk.Grant(CREDENTIAL.replace(":", "-")))
"""Has a token for every account."""


class _FrozenClock:
    def __init__(self, clock: sdk.Clock) -> None:
        now, monotonic = clock.now(), clock.monotonic()
        self.now, self.monotonic = lambda: now, lambda: monotonic

    async def sleep(self, seconds: float) -> None: ...


@dataclass(slots=True)
class DryRun:
    """The requests of one run of an adapter. `alone`: it ends with the first. `outcome`: that of a run that sends nothing."""

    adapter: sdk.Adapter
    booking: sdk.Booking
    alone: bool = False
    requests: list[sdk.Request] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    outcome: sdk.Rejected | sdk.Deferred | None = None
    ended: bool = False

    async def send(self, request: sdk.Request) -> sdk.Response:
        answered: sdk.StandIn | None = None
        if not self.ended and len(self.requests) < 20:  # noqa: PLR2004
            destination_of(request.url)
            self.requests.append(request)
            if not self.alone and isinstance(self.adapter, sdk.RehearsingAdapter):
                answered = self.adapter.stand_in(request, self.booking)
        if answered is None:
            self.ended = True
            raise sdk.NoResponse("dry_run", "Nothing is sent in a dry run.")  # nobody records it: it is no outcome
        if answered.means:
            self.assumed.append(answered.means)
        return answered.response


class Previews:
    def __init__(self, clock: sdk.Clock) -> None:
        self._clock = clock

    async def rehearse(self, connection: sdk.AccountConnection, booking: sdk.Booking) -> Rehearsal:
        """Does not look at the credential. Raises `UnknownKind` and `BadOptions`, and nothing of what the adapter does."""
        adapter = _adapter(connection, _FrozenClock(self._clock))
        run = await dry_run(adapter, booking)
        shown = [_shown(request) for request in run.requests]
        if booking.card is not None:
            others = [await dry_run(adapter, replace(booking, card=card)) for card in _OTHER_CARDS]
            shown = _without_card(shown, [[*map(_shown, other.requests)] for other in others], booking.card)
        return Rehearsal(shown, run.assumed, run.outcome)

    def losses(self, connection: sdk.AccountConnection) -> Sequence[Loss]:
        try:
            return table_of(connection, self._clock).losses
        except (UnknownKind, BadOptions):
            return ()


def table_of(connection: sdk.AccountConnection, clock: sdk.Clock, registry: Registry | None = None) -> sdk.FieldTable:
    """What becomes of each field in that account. Raises as `rehearse` does."""
    return _adapter(connection, clock, registry).fields


def _adapter(connection: sdk.AccountConnection, clock: sdk.Clock, registry: Registry | None = None) -> sdk.Adapter:
    registry = registry or registered()
    check_options(connection.kind, connection.options, registry)
    return registry.kinds[connection.kind](replace(connection, credential=CREDENTIAL, grants=WITHHELD), clock)


async def dry_run(adapter: sdk.Adapter, booking: sdk.Booking) -> DryRun:
    run = DryRun(adapter, booking)
    outcome: sdk.Outcome
    try:
        outcome = await adapter.create(booking, run.send)
    except (sdk.NotSent, sdk.NoResponse) as failure:
        outcome = sdk.outcome_of(failure)
    except Exception as error:  # noqa: BLE001 - other people's code: a worker has it in doubt, and says no more of it either
        outcome = sdk.Deferred("adapter_failed", f"The adapter raised {type(error).__name__}.")
    if isinstance(outcome, sdk.Rejected | sdk.Deferred) and not run.requests:
        run.outcome = outcome
    return run


async def trial_run(
    connection: sdk.AccountConnection, booking: sdk.Booking, clock: sdk.Clock
) -> tuple[Rehearsal, Sequence[tuple[str, ShownRequest, Mapping[str, str]]]]:
    """The dry run of a create; and each request of it, and the first of a look-up and of a cancellation, with its step (create,
    find or cancel) and its headers. Credentials and cards are out of sight. Nothing is sent. Raises as `rehearse` does."""
    rehearsal = await Previews(clock).rehearse(connection, booking)
    adapter = _adapter(connection, _FrozenClock(clock))
    created = (await dry_run(adapter, booking)).requests
    tried = [("create", *each) for each in zip(rehearsal.requests, map(_headers_of, created), strict=False)]
    uncarded = replace(booking, card=None)
    can = adapter.capabilities
    for step in ("find", "cancel"):
        run = DryRun(adapter, uncarded, alone=True)
        # Nobody answers, and adapters are other people's code: what was asked until then is shown.
        with suppress(Exception):
            if step == "find" and can.find_by_reference:
                await adapter.find(uncarded, run.send)
            if step == "cancel" and can.cancel:
                await adapter.cancel(uncarded, "THE-PMS-ID", run.send)
        tried += [(step, _shown(request), _headers_of(request)) for request in run.requests]
    return rehearsal, tried


def _headers_of(request: sdk.Request) -> dict[str, str]:
    """As text. A value that contains the credential, in any encoding, is hidden."""
    told = (*CREDENTIAL.split(":"), b64encode(CREDENTIAL.encode()).decode())
    named = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
    return {name: _HIDDEN if any(one in value for one in told) else value for name, value in named}


def _shown(request: sdk.Request) -> ShownRequest:
    media_type = next((value.decode() for name, value in request.headers if name.lower() == b"content-type"), None)
    path = urlsplit(request.url).path + ("?" + request.query if request.query else "")
    for spelling in (CREDENTIAL, quote_plus(CREDENTIAL), quote(CREDENTIAL, safe="")):
        path = path.replace(spelling, _HIDDEN)
    body: Any = request.content.decode("utf-8", "replace") or None
    if body is not None and (media_type or "").startswith("application/x-www-form-urlencoded"):
        body = dict(parse_qsl(body, keep_blank_values=True))
    elif body is not None:
        with suppress(ValueError):
            body = from_json(request.content)
    return ShownRequest(request.method, path, media_type, body)


def _without_card(
    run: Sequence[ShownRequest], others: Sequence[Sequence[ShownRequest]], card: sdk.CardDetails
) -> list[ShownRequest]:
    """`run`, with everything masked that changes with the card; of a request that would be another one, all of it."""
    shown = []
    for number, mine in enumerate(run):
        theirs = [other[number] for other in others if number < len(other)]
        if len(theirs) < len(others) or any(their.method != mine.method for their in theirs):
            shown.append(replace(mine, path=_HIDDEN, body=_HIDDEN))
            continue
        path = mine.path if all(their.path == mine.path for their in theirs) else _HIDDEN
        shown.append(replace(mine, path=path, body=_masked(mine.body, [their.body for their in theirs], card)))
    return shown


def _masked(mine: Any, theirs: Sequence[Any], card: sdk.CardDetails) -> Any:
    if all(their == mine for their in theirs):
        return mine
    if isinstance(mine, Mapping) and all(isinstance(their, Mapping) for their in theirs):
        return {name: _masked(part, [their.get(name) for their in theirs], card) for name, part in mine.items()}
    if isinstance(mine, list) and all(isinstance(one, list) and len(one) == len(mine) for one in theirs):
        return [_masked(part, [their[at] for their in theirs], card) for at, part in enumerate(mine)]
    number = digits_of(card.card_number or "")
    is_number = isinstance(mine, str | int) and digits_of(str(mine)) == number and len(number) >= 12  # noqa: PLR2004
    return masked(number) if is_number else _HIDDEN
