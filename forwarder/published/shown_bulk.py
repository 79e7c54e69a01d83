"""The answers to the example's bulk and to its dry runs, as the ingress writes them."""

from typing import Any, Final

from pydantic_core import from_json, to_json

from forwarder.ingress.bulk import Kept
from forwarder.ingress.bulk_response import bulk_body
from forwarder.ingress.dry_run import DryRun, dry_run
from forwarder.ingress.message import Draft
from forwarder.ingress.problems import validation_failed
from forwarder.ingress.receipt import Receipt
from forwarder.published import examples
from forwarder.reservation.request import BookingEngineRequest
from forwarder.reservation.rules import BOOKING_SYNC
from forwarder.tenancy.port import Account

_CARD: Final = {
    "cardNumber": "4111 1111 1111 1111",
    "cardHolderName": "Ana Ruiz",
    "expiryMonth": "09",
    "expiryYear": "2031",
}


def bulk_examples(origin: str) -> dict[str, Any]:
    """By name."""
    refused = validation_failed((examples.FAULT,))
    kept = Kept(_draft(), Receipt(examples.request_id(), examples.ACCEPTED_AT))
    return {
        "bulkAnswered": from_json(bulk_body((kept, refused), origin)),
        "bulkTried": from_json(bulk_body((_tried(cardDetails=_CARD), refused), origin)),
        "dryRun": {"data": _tried(cardDetails=_CARD).as_json()},
        "dryRunRefused": {"data": _tried(morChannel="PMS").as_json()},
    }


def _draft() -> Draft:
    submitted = examples.submission()
    return Draft(
        request_id=submitted.request_id,
        workspace_id=submitted.workspace_id,
        account_id=submitted.account_id,
        operation=submitted.operation,
        accepted_at=examples.ACCEPTED_AT,
        reservation=b"",
        fingerprint=submitted.fingerprint,
        key=submitted.key,
        keyed=True,
    )


def _tried(**fields: Any) -> DryRun:
    account = Account(examples.ACCOUNT_ID, examples.WORKSPACE_ID, BOOKING_SYNC, "", "")
    request = BookingEngineRequest.model_validate_json(to_json({**examples.BOOKING_ENGINE, **fields}))
    return dry_run(account, request)
