"""Request bodies of both operations, every field of the contract filled in, and ways to change one value in them."""

import copy
from typing import Any

ABSENT: Any = object()
"""For `changed`: the field is left out."""

BOOKING_ENGINE: dict[str, Any] = {
    "morChannel": "SELF",
    "propertyId": 1001,
    "roomId": "A-7",
    "arrivalDate": "2027-06-01",
    "departureDate": "2027-06-05",
    "arrivalEstimatedTime": "15:00",
    "departureEstimatedTime": 11,
    "guest": {
        "name": "Ana Ruiz",
        "firstName": "Ana",
        "lastName": "Ruiz",
        "email": "ana.ruiz@example.com",
        "phone": 34600111222,
        "address": {
            "line1": "Calle Mayor 1",
            "line2": "",
            "postalCode": "28013",
            "city": "Madrid",
            "state": "Madrid",
            "country": "ES",
        },
    },
    "numberOfGuests": 4,
    "numberOfAdults": 2,
    "numberOfChildren": 1,
    "numberOfInfants": 1,
    "numberOfPets": 0,
    "totalPrice": 480.5,
    "currency": "EUR",
    "notes": "Late arrival",
    "comments": "Second stay",
    "status": "CONFIRMED",
    "paymentProviderKey": "pm_1",
    "paymentProviderId": 77,
    "transactionId": "tx-1",
    "promotionCode": "SUMMER",
}

GENERAL: dict[str, Any] = {
    "propertyId": "00123",
    "roomId": 7,
    "arrivalDate": "2027-06-01",
    "departureDate": "2027-06-05",
    "arrivalEstimatedTime": 15.5,
    "departureEstimatedTime": "11:00",
    "guest": {
        "name": "Ana Ruiz",
        "firstName": "Ana",
        "lastName": "Ruiz",
        "email": "ana.ruiz@example.com",
        "phone": "+34 600 111 222",
        "address": {
            "line1": "Calle Mayor 1",
            "line2": "2B",
            "postalCode": "28013",
            "city": "Madrid",
            "state": "Madrid",
            "country": "Spain",
        },
    },
    "numberOfGuests": 2,
    "numberOfAdults": 2,
    "numberOfChildren": 0,
    "numberOfInfants": 0,
    "numberOfPets": 1,
    "totalPrice": 480,
    "currency": "EUR",
    "notes": "Late arrival",
    "comments": "Second stay",
    "status": "confirmed",
    "paymentProviderId": 77,
}

CARD: dict[str, Any] = {
    "cardNumber": "4111 1111 1111 1111",
    "cardHolderName": "ANA R HOLDER",
    "expiryMonth": "09",
    "expiryYear": "2031",
    "cvv": "987",
}


def changed(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `body` with the value at the dotted `path` replaced, or taken out where it is `ABSENT`."""
    copied = copy.deepcopy(body)
    *parents, last = path.split(".")
    place = copied
    for parent in parents:
        place = place[parent]
    place.pop(last, None)
    if value is not ABSENT:
        place[last] = value
    return copied


def value_at(body: dict[str, Any], path: str) -> Any:
    """The value at the dotted `path`; `ABSENT` where there is none."""
    value: Any = body
    for step in path.split("."):
        if step not in value:
            return ABSENT
        value = value[step]
    return value


def pointer(path: str) -> str:
    """The JSON Pointer of a dotted path."""
    return "/" + path.replace(".", "/")
