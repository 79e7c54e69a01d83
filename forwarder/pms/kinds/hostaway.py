"""What hostaway.yaml cannot say: the parts of a price that Hostaway lists as finance fields."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.sdk import Booking, decimal, finances, json_number, record_fields


class HostawayAdapter(MappedAdapter):
    """Hostaway as one account speaks it."""

    def record(self, shown: Mapping[str, Any], booking: Booking) -> dict[str, Any]:  # noqa: ARG002 - the port's
        price, left = decimal(shown.get("totalPrice")), decimal(shown.get("remainingBalance"))
        paid = price - left if price is not None and left is not None else None
        lines = [line for line in _objects(shown.get("financeField")) if _counts(line)]
        return record_fields(
            {
                "totalPrice": None if price is None else json_number(price),
                "currency": shown.get("currency"),
                "notes": shown.get("hostNote"),
                "codes": {"accessCode": [shown["doorCode"]]} if shown.get("doorCode") else None,
                "finances": finances(price, paid, left)
                | {
                    "currency": shown.get("currency"),
                    "fee": _part(lines, "fee", "totalFee", "Fee"),
                    "tax": _part(lines, "tax", "totalTax", "Tax"),
                    "discount": _part(lines, "discount", "totalDiscount", "Discount"),
                },
            }
        )


def _objects(parts: object) -> Iterable[Mapping[str, Any]]:
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _counts(line: Mapping[str, Any]) -> bool:
    return not line.get("isDeleted") and bool(line.get("isIncludedInTotalPrice", 1))


def _part(lines: Sequence[Mapping[str, Any]], of_type: str, total_name: str, our_type: str) -> dict[str, Any] | None:
    """The lines of one type, and their sum; None without any."""
    amounts = [
        (str(line.get("title") or line.get("name") or our_type), amount)
        for line in lines
        if line.get("type") == of_type and (amount := decimal(line.get("total"))) is not None
    ]
    if not amounts:
        return None
    breakdown = [{"name": name, "type": our_type, "total": json_number(amount)} for name, amount in amounts]
    return {total_name: json_number(sum((amount for _, amount in amounts), Decimal())), "breakdown": breakdown}
