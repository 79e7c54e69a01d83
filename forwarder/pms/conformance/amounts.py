"""Check of money: what was asked reaches the PMS, and comes back, to the last decimal."""

import re
from decimal import Decimal
from typing import Any, Final

from forwarder.pms.conformance.check import Findings
from forwarder.pms.conformance.trial import NotApplicable, Trial

_AMOUNTS: Final = tuple(
    map(Decimal, ("1.15", "8.20", "450.35", "1234567.89", "999999999.99", "1000000", "16.35", "0.29"))
)
"""Among them such as binary fractions, and multiplying them, get wrong."""

_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_NOISE: Final = re.compile(r"\d+\.\d{6,}")
_HUNDREDTHS: Final = 100


async def keeps_amounts_exact(trial: Trial) -> Findings:
    """Amounts are decimal: what a PMS is told, and what a record says, is exactly what was asked for."""
    sent_as: dict[Decimal, bool] = {}
    findings: list[str] = []
    for amount in _AMOUNTS:
        _, made = await trial.made(price=amount)
        sent = " ".join(each.body.decode("latin-1") + " " + each.target for each in trial.wire.exchanges)
        sent_as[amount] = _says(sent, amount)
        findings += [f"{amount} was sent as {noise[0]}" for noise in _NOISE.finditer(sent)]
        findings += _unlike(made.record, amount)
    if not any(sent_as.values()):
        raise NotApplicable("the PMS is told no amount: it sets its own")
    missing = [f"{amount} was sent neither as {amount} nor in hundredths" for amount, was in sent_as.items() if not was]
    for finding in [*missing, *findings]:
        yield finding


def _says(sent: str, amount: Decimal) -> bool:
    wanted = {amount, amount * _HUNDREDTHS}
    return any(Decimal(number) in wanted for number in _NUMBER.findall(sent))


def _unlike(record: Any, amount: Decimal) -> list[str]:
    """What the record says of money that is not what was asked."""
    finances = record.get("finances") or {}
    prices = {"totalPrice": record.get("totalPrice"), "finances.totalPrice": finances.get("totalPrice")}
    wrong = [
        f"{amount} came back as {name} {price!r}"
        for name, price in prices.items()
        if price is not None and Decimal(str(price)) != amount
    ]
    return wrong + [f"{amount} came back as {noise[0]}" for noise in _NOISE.finditer(repr(record))]
