"""The part of Hostaway that hostaway.yaml cannot express: the components of a price, listed as finance fields."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from forwarder.pms.mapping.adapter import MappedAdapter
from forwarder.pms.sdk import Booking, decimal, finances, json_number, objects, price_part, record_fields


class HostawayAdapter(MappedAdapter):
    def record(self, shown: Mapping[str, Any], booking: Booking) -> dict[str, Any]:  # noqa: ARG002 - the port's
        price, left = decimal(shown.get("totalPrice")), decimal(shown.get("remainingBalance"))
        paid = price - left if price is not None and left is not None else None
        parts: dict[str, list[tuple[str, Decimal]]] = {"fee": [], "tax": [], "discount": []}
        for line in objects(shown.get("financeField")):
            kind, value = line.get("type"), decimal(line.get("total"))
            counts = not line.get("isDeleted") and line.get("isIncludedInTotalPrice", 1)
            if counts and kind in parts and value is not None:
                parts[kind].append((str(line.get("title") or line.get("name") or kind.capitalize()), value))
        sums = {part: price_part(part, lines) if lines else None for part, lines in parts.items()}
        fields = {
            "totalPrice": None if price is None else json_number(price),
            "currency": shown.get("currency"),
            "notes": shown.get("hostNote"),
            "codes": {"accessCode": [shown["doorCode"]]} if shown.get("doorCode") else None,
            "finances": finances(price, paid, left) | {"currency": shown.get("currency"), **sums},
        }
        return record_fields(fields)
