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

COUNTRIES = """
AF AX AL DZ AS AD AO AI AQ AG AR AM AW AU AT AZ BS BH BD BB BY BE BZ BJ BM BT BO BQ BA BW BV BR IO BN BG BF BI CV KH CM CA KY CF
TD CL CN CX CC CO KM CG CD CK CR HR CU CW CY CZ DK DJ DM DO EC EG SV GQ ER EE SZ ET FK FO FJ FI FR GF PF TF GA GM GE DE GH GI GR
GL GD GP GU GT GG GN GW GY HT VA HN HK HU IS IN ID IR IQ IE IM IL IT JM JP JE JO KZ KE KI KW KG LA LV LB LS LR LY LI LT LU MO MG
MW MY MV ML MT MH MQ MR MU MX FM MD MC MN ME MS MA MZ MM NA NR NP NL NZ NI NE NG MK NO OM PK PW PS PA PG PY PE PH PL PT PR QA RO
RU RW KN LC VC WS SM SA SN RS SC SL SG SK SI SB SO ZA KR ES LK SD SR SE CH SY TW TJ TZ TH TL TG TO TN TR TM TV UG UA AE GB US UY
UZ VU VE VN YE ZM ZW
""".split()
"""The codes that section 2.4 of the contract lists."""

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
