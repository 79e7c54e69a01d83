"""What the bodies of the open PMS contract are made of, from the models on both sides of the seam. Pure."""

from typing import Any, Final

from forwarder.pms.kinds.generic import KEY_REUSED, NOT_THERE, NOTHING_DONE, STILL_WORKING
from forwarder.pms.responses.record import RecordFields
from forwarder.pms.responses.refusals import REFUSALS
from forwarder.reservation.request import BookingEngineRequest, GeneralRequest
from tools.contracts.json_schema import schema_of

REF: Final = "#/components/schemas/"
"""Where in the document they stand."""


def contract_schemas() -> dict[str, Any]:
    """Every schema by its name."""
    parts: dict[str, Any] = {}
    models = (BookingEngineRequest, GeneralRequest, RecordFields)
    engine, general, record = (schema_of(model, parts, ref=REF, mode="serialization") for model in models)
    # Both operations' fields, as loose as the looser of the two: a PMS gets either.
    fields = engine["properties"] | general["properties"]
    request = {
        "type": "object",
        "description": "A reservation as the caller gave it, in the forms in which it came. Fields without a value are left out.",
        "required": ["reference", "propertyId", "roomId", "arrivalDate", "departureDate", "guest"],
        "properties": {
            "reference": {
                "type": "string",
                "description": "The forwarder's id of the request, to be kept with the reservation.",
            }
        }
        | fields
        | {"roomId": engine["properties"]["roomId"]},
    }
    used = {name: part for name, part in parts.items() if name not in ("Guest", "Address")}
    return {"ReservationRequest": request, "Reservation": _reservation(record), "Problem": _problem()} | used


def _reservation(record: dict[str, Any]) -> dict[str, Any]:
    own = {
        "id": {"type": ["string", "integer"], "description": "The PMS's own id of the reservation."},
        "reference": {"type": "string", "description": "As it was sent."},
        "status": {
            "enum": ["CONFIRMED", "REJECTED", "CANCELLED"],
            "default": "CONFIRMED",
            "description": "In any case of letters. Any other leaves the reservation in doubt.",
        },
    }
    return {
        "type": "object",
        "description": "A reservation. The forwarder's record takes the PMS's word for these fields; others may be there.",
        "required": ["id"],
        "properties": own | record["properties"],
    }


def _problem() -> dict[str, Any]:
    return {
        "type": "object",
        "description": "A problem (RFC 9457). `title` and `detail` are shown to the caller: no card or guest data in them.",
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "code": {
                "type": "string",
                "description": "What programs may branch on; any other code counts as `pms_refused`.",
                "examples": [*REFUSALS, STILL_WORKING, KEY_REUSED, NOT_THERE, NOTHING_DONE],
            },
        },
    }
