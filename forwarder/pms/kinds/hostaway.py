"""The part of Hostaway that hostaway.yaml cannot express: the components of a price, listed as finance fields."""

from collections.abc import Mapping, Sequence
from typing import Any

from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.sdk import Booking, decimal, finances, json_number, objects, price_part, record_fields


class HostawayAdapter(MappedAdapter):
    """An account of Hostaway."""

    def record(self, shown: Mapping[str, Any], booking: Booking) -> dict[str, Any]:  # noqa: ARG002 - the port's
        price, left = decimal(shown.get("totalPrice")), decimal(shown.get("remainingBalance"))
        paid = price - left if price is not None and left is not None else None
        lines = [line for line in objects(shown.get("financeField")) if _counts(line)]
        return record_fields(
            {
                "totalPrice": None if price is None else json_number(price),
                "currency": shown.get("currency"),
                "notes": shown.get("hostNote"),
                "codes": {"accessCode": [shown["doorCode"]]} if shown.get("doorCode") else None,
                "finances": finances(price, paid, left)
                | {
                    "currency": shown.get("currency"),
                    **{part: _part(part, lines) for part in ("fee", "tax", "discount")},
                },
            }
        )


def _counts(line: Mapping[str, Any]) -> bool:
    return not line.get("isDeleted") and bool(line.get("isIncludedInTotalPrice", 1))


def _part(part: str, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    amounts = [
        (str(line.get("title") or line.get("name") or part.capitalize()), amount)
        for line in lines
        if line.get("type") == part and (amount := decimal(line.get("total"))) is not None
    ]
    return price_part(part, amounts) if amounts else None
