"""The open PMS contract: schemas/pms-openapi.yaml, completed by the models that requests are validated with and answers are read
with. Pure; published as schemas/pms-openapi.json."""

from typing import Any, Final

from forwarder.pms.responses import RecordFields
from forwarder.reservation.request import BookingEngineRequest, GeneralRequest
from tools.contracts.models import schema_of
from tools.contracts.written import expanded, require_references, written

NAME: Final = "pms-openapi.yaml"


def open_pms_contract() -> dict[str, Any]:
    """The document."""
    document: dict[str, Any] = expanded(written(NAME))
    parts: dict[str, Any] = {}
    models = (BookingEngineRequest, GeneralRequest, RecordFields)
    engine, general, record = (schema_of(model, parts, "serialization")["properties"] for model in models)
    # Both operations' fields, as loose as the looser of the two: a PMS gets either.
    fields = {"ReservationRequest": engine | general | {"roomId": engine["roomId"]}, "Reservation": record}
    schemas = document["components"]["schemas"]
    for name, own in fields.items():
        said = {key: value for key, value in schemas[name].items() if key != "x-model"}
        schemas[name] = said | {"properties": said["properties"] | own}
    # The booking-engine operation's stricter guest and address are not referred to.
    schemas |= {name: part for name, part in parts.items() if name not in ("Guest", "Address")}
    require_references(document, NAME)
    return document
