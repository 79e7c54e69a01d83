"""Warnings about a request: unknown fields, a rounded price, and fields that the account's PMS does not receive."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from forwarder.pms.port import AccountConnection, Loss, Preview
from forwarder.reservation.checks.faults import nearest
from forwarder.reservation.checks.fields import Reading
from forwarder.reservation.problems.problem import pointer_to
from forwarder.reservation.usual import given
from forwarder.tenancy.port import Account

_MAX_ACCOUNTS: Final = 4_096
_CARD: Final = "cardDetails"


class CallerWarning(NamedTuple):
    """`pointer`: the JSON Pointer (RFC 6901) of what it speaks of, from the reservation on."""

    code: str
    pointer: str
    detail: str

    def as_json(self) -> dict[str, str]:
        return self._asdict()


class Losses:
    """The fields that accounts do not send to their PMS. Cached per account until the account changes; usually nothing is lost, and
    a check is one look-up in memory."""

    def __init__(self, preview: Callable[[], Preview]) -> None:
        self._preview = preview
        self._known: dict[str, tuple[Account, Sequence[Loss]]] = {}

    def warnings(self, account: Account, read: Reading) -> tuple[CallerWarning, ...]:
        """Warnings about fields of a request that do not reach the account's PMS, its unknown fields, and a rounded price."""
        request, found = read.request, list[CallerWarning]()
        for field in read.unknown:
            pointer = field.place + pointer_to(field.name)
            meant = nearest(field.name, field.known)
            hint = "" if meant is None else f" Did you mean {meant}?"
            found.append(CallerWarning("unknown_field", pointer, f"There is no such field; it was ignored.{hint}"))
        if read.rounded:
            currency = f" {request.currency}" if request.currency else ""
            more = f"The price had more decimals than{currency or ' a currency'} has."
            detail = f"{more} It was rounded to {request.total_price}{currency}."
            found.append(CallerWarning("price_rounded", "/totalPrice", detail))
        known = self._known.get(account.id)
        if known is None or known[0] is not account:
            if len(self._known) >= _MAX_ACCOUNTS:
                self._known.clear()
            known = self._known[account.id] = account, self._preview().losses(connection_to(account))
        card = getattr(request, "card_details", None)
        losses = [loss for loss in known[1] if card is not None or not loss.field.startswith(_CARD)]
        if losses:  # hardly ever; else the request need not be serialized
            fields = given(request)
            found += dict.fromkeys(_of_field(account.kind, loss) for loss in losses if _is_lost(loss, fields))
        return tuple(found)


def connection_to(account: Account) -> AccountConnection:
    """The connection without the credential, which an ingress cannot open."""
    return AccountConnection(account.id, account.kind, account.base_url, "", options=account.options)


def _is_lost(loss: Loss, given: Mapping[str, Any]) -> bool:
    if loss.unless is not None and given.get(loss.unless[0]) == loss.unless[1]:
        return False
    value: Any = given
    for part in loss.field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value is not None and value != ""


def _of_field(kind: str, loss: Loss) -> CallerWarning:
    reason = loss.reason.removeprefix("sensitive: ")
    why = f"{reason[:1].upper()}{reason[1:]}."
    if loss.field.startswith(_CARD):
        return CallerWarning(
            "card_not_sent", f"/{_CARD}", f"The card goes nowhere: this {kind} account does not send it. {why}"
        )
    detail = f"The PMS of this {kind} account is not sent this field. {why}"
    return CallerWarning("field_not_sent", "/" + loss.field.replace(".", "/"), detail)
