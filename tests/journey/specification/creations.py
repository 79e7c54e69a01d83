"""Sections 2.1 to 2.4: what a creation is made of."""

from collections.abc import Mapping, Sequence

from tests.journey.specification.requirement import (
    ABSENT,
    CARD,
    Row,
    accepted,
    arrives,
    arrives_with,
    engine,
    general,
    refused,
)
from tests.support.stages.bodies import COUNTRIES


def _stay(arrival: str, departure: str) -> Mapping[str, str]:
    return {"arrivalDate": arrival, "departureDate": departure}


# fmt: off
_MINIMAL_ENGINE = dict.fromkeys((
    "arrivalEstimatedTime", "departureEstimatedTime", "guest.phone", "numberOfAdults", "numberOfChildren", "numberOfInfants",
    "numberOfPets", "notes", "comments", "paymentProviderKey", "paymentProviderId", "promotionCode", "status",
), ABSENT)
_MINIMAL_GENERAL = dict.fromkeys((
    "roomId", "arrivalEstimatedTime", "departureEstimatedTime", "guest.firstName", "guest.lastName", "guest.email", "guest.phone",
    "guest.address", "numberOfGuests", "numberOfAdults", "numberOfChildren", "numberOfInfants", "numberOfPets", "totalPrice",
    "currency", "notes", "comments", "status", "paymentProviderId",
), ABSENT)
# fmt: on
_ADDRESS = {f"guest.address.{part}": f"some {part}" for part in ("line1", "line2", "postalCode", "city", "state")}

# fmt: off
BOOKING_ENGINE_REQUEST: Sequence[Row] = [
    Row("morChannel-required", "who takes the payment has to be said", engine({"morChannel": ABSENT}), refused("morChannel")),
    Row("propertyId-text", "a property is named by text", engine({"propertyId": "A-7"}), arrives),
    Row("propertyId-number", "a property is named by a number", engine({"propertyId": 1001}), arrives),
    Row("propertyId-required", "the property has to be named", engine({"propertyId": ABSENT}), refused("propertyId")),
    Row("roomId-text", "a room is named by text", engine({"roomId": "suite-2"}), arrives),
    Row("roomId-number", "a room is named by a number", engine({"roomId": 42}), arrives),
    Row("roomId-required", "the room has to be named", engine({"roomId": ABSENT}), refused("roomId")),
    Row("arrivalDate-day", "the day of arrival, year first", engine(_stay("2031-02-27", "2031-03-02")), arrives),
    Row("arrivalDate-required", "the day of arrival has to be given", engine({"arrivalDate": ABSENT}), refused("arrivalDate")),
    Row("arrivalDate-other", "a day in another form is none", engine({"arrivalDate": "27/02/2031"}), refused("arrivalDate")),
    Row("departureDate-day", "the day of departure, year first", engine(_stay("2031-02-25", "2031-03-09")), arrives),
    Row("departureDate-required", "the day of departure has to be given", engine({"departureDate": ABSENT}),
        refused("departureDate")),
    Row("departureDate-other", "a day in another form is none", engine({"departureDate": "2-3-2031"}),
        refused("departureDate")),
    Row("arrivalEstimatedTime-text", "when guests come: a time", engine({"arrivalEstimatedTime": "16:30"}), arrives),
    Row("arrivalEstimatedTime-number", "when guests come: a number", engine({"arrivalEstimatedTime": 16}), arrives),
    Row("departureEstimatedTime-text", "when guests leave: a time", engine({"departureEstimatedTime": "10:00"}), arrives),
    Row("departureEstimatedTime-number", "when guests leave: a number", engine({"departureEstimatedTime": 10}), arrives),
    Row("guest-required", "there has to be a guest", engine({"guest": ABSENT}), refused("guest")),
    Row("guest-object", "the guest is an object", engine({"guest": "Ana Ruiz"}), refused("guest")),
    Row("guest.name-text", "the guest's full name", engine({"guest.name": "José Ñandú"}), arrives),
    Row("guest.name-required", "it has to be given", engine({"guest.name": ABSENT}), refused("guest", "name")),
    Row("guest.firstName-text", "the guest's first name", engine({"guest.firstName": "José"}), arrives),
    Row("guest.firstName-required", "it has to be given", engine({"guest.firstName": ABSENT}), refused("guest", "firstName")),
    Row("guest.lastName-text", "the guest's last name", engine({"guest.lastName": "Ñandú"}), arrives),
    Row("guest.lastName-required", "it has to be given", engine({"guest.lastName": ABSENT}), refused("guest", "lastName")),
    Row("guest.email-text", "the guest's address of e-mail", engine({"guest.email": "jose+stay@example.com"}), arrives),
    Row("guest.email-required", "it has to be given", engine({"guest.email": ABSENT}), refused("guest", "email")),
    Row("guest.phone-text", "a telephone number as text", engine({"guest.phone": "+34 600 111 222"}), arrives),
    Row("guest.phone-number", "a telephone number as a number", engine({"guest.phone": 34600111222}), arrives),
    Row("guest.address-required", "there has to be an address", engine({"guest.address": ABSENT}), refused("guest", "address")),
    Row("guest.address-parts", "its parts are texts", engine(_ADDRESS), arrives),
    Row("guest.address.line1-required", "the first line has to be given", engine({"guest.address.line1": ABSENT}),
        refused("line1")),
    Row("guest.address.line2-required", "the second line has to be given", engine({"guest.address.line2": ABSENT}),
        refused("line2")),
    Row("guest.address.line2-empty", "it may be empty", engine({"guest.address.line2": ""}), arrives),
    Row("guest.address.postalCode-required", "the postal code has to be given", engine({"guest.address.postalCode": ABSENT}),
        refused("postalCode")),
    Row("guest.address.city-required", "the city has to be given", engine({"guest.address.city": ABSENT}), refused("city")),
    Row("guest.address.state-required", "the state has to be given", engine({"guest.address.state": ABSENT}), refused("state")),
    Row("guest.address.country-required", "the country has to be given", engine({"guest.address.country": ABSENT}),
        refused("country")),
    Row("numberOfGuests-number", "how many come", engine({"numberOfGuests": 6}), arrives),
    Row("numberOfGuests-required", "how many come has to be said", engine({"numberOfGuests": ABSENT}),
        refused("numberOfGuests")),
    Row("numberOfAdults-number", "how many adults", engine({"numberOfAdults": 1}), arrives),
    Row("numberOfChildren-number", "how many children", engine({"numberOfChildren": 0}), arrives),
    Row("numberOfInfants-number", "how many infants", engine({"numberOfInfants": 0}), arrives),
    Row("numberOfPets-number", "how many pets", engine({"numberOfPets": 2}), arrives),
    Row("totalPrice-whole", "a price without cents", engine({"totalPrice": 480}), arrives),
    Row("totalPrice-cents", "a price with cents", engine({"totalPrice": 480.35}), arrives),
    Row("totalPrice-sum", "a price as programs add it up", engine({"totalPrice": 3 * 33.10}), arrives_with({"totalPrice": 99.3})),
    Row("totalPrice-required", "the price has to be given", engine({"totalPrice": ABSENT}), refused("totalPrice")),
    Row("currency-text", "the currency of the payment", engine({"currency": "USD"}), arrives),
    Row("currency-required", "it has to be given", engine({"currency": ABSENT}), refused("currency")),
    Row("notes-text", "notes on the stay", engine({"notes": "Späte Anreise\nnach 22 Uhr"}), arrives),
    Row("comments-text", "comments on the stay", engine({"comments": "Third stay"}), arrives),
    Row("paymentProviderKey-text", "a token of the payment provider", engine({"paymentProviderKey": "pm_1QxYz"}), arrives),
    Row("paymentProviderId-text", "the payment provider by text", engine({"paymentProviderId": "77-b"}), arrives),
    Row("paymentProviderId-number", "the payment provider by a number", engine({"paymentProviderId": 77}), arrives),
    Row("transactionId-text", "the gateway's transaction", engine({"transactionId": "pi_3Mtw"}), arrives),
    Row("promotionCode-text", "a promotion code", engine({"promotionCode": "SUMMER-31"}), arrives),
    Row("cardDetails-object", "a card is an object", engine({"cardDetails": "4111 1111 1111 1111"}), refused("cardDetails")),
    Row("cardDetails-whole", "a card with all its fields", engine({"cardDetails": CARD | {"expiryYear": "2035"}}), arrives),
    Row("cardDetails-optional", "none of its fields has to be given", engine({"cardDetails": {}}), accepted),
    Row("cardDetails.cardHolderName-text", "its holder alone", engine({"cardDetails": {"cardHolderName": "A RUIZ"}}), arrives),
    Row("optional-absent", "what is optional may be left out, all at once", engine(_MINIMAL_ENGINE), arrives),
    Row("status-example", "the status of the examples", engine({"status": "CONFIRMED"}), accepted),
]

GENERAL_REQUEST: Sequence[Row] = [
    Row("propertyId-text", "a property is named by text", general({"propertyId": "A-7"}), arrives),
    Row("propertyId-number", "a property is named by a number", general({"propertyId": 1001}), arrives),
    Row("propertyId-required", "the property has to be named", general({"propertyId": ABSENT}), refused("propertyId")),
    Row("roomId-text", "a room is named by text", general({"roomId": "suite-2"}), arrives),
    Row("roomId-number", "a room is named by a number", general({"roomId": 42}), arrives),
    Row("arrivalDate-day", "the day of arrival, year first", general(_stay("2030-12-30", "2031-01-02")), arrives),
    Row("arrivalDate-required", "the day of arrival has to be given", general({"arrivalDate": ABSENT}), refused("arrivalDate")),
    Row("departureDate-day", "the day of departure, year first", general(_stay("2031-02-24", "2031-03-04")), arrives),
    Row("departureDate-required", "the day of departure has to be given", general({"departureDate": ABSENT}),
        refused("departureDate")),
    Row("arrivalEstimatedTime-text", "when guests come: a time", general({"arrivalEstimatedTime": "16:30"}), arrives),
    Row("arrivalEstimatedTime-number", "when guests come: a number", general({"arrivalEstimatedTime": 16}), arrives),
    Row("departureEstimatedTime-text", "when guests leave: a time", general({"departureEstimatedTime": "10:00"}), arrives),
    Row("departureEstimatedTime-number", "when guests leave: a number", general({"departureEstimatedTime": 10}), arrives),
    Row("guest-required", "there has to be a guest", general({"guest": ABSENT}), refused("guest")),
    Row("guest-names", "names of the guest are texts", general({"guest": {"name": "Jo Ñu", "firstName": "Jo", "lastName": "Ñu"}}),
        arrives),
    Row("guest.email-text", "an address of e-mail", general({"guest.email": "jose+stay@example.com"}), arrives),
    Row("guest.phone-text", "a telephone number as text", general({"guest.phone": "+34 600 111 222"}), arrives),
    Row("guest.phone-number", "a telephone number as a number", general({"guest.phone": 34600111222}), arrives),
    Row("guest.address-parts", "parts of an address are texts", general(_ADDRESS), arrives),
    Row("guest.address-optional", "none of them has to be given", general({"guest.address": {}}), accepted),
    Row("guest.address.country-name", "the country is a name", general({"guest.address.country": "Spain"}), arrives),
    Row("numberOfGuests-number", "how many come", general({"numberOfGuests": 6}), arrives),
    Row("numberOfAdults-number", "how many adults", general({"numberOfAdults": 1}), arrives),
    Row("numberOfChildren-number", "how many children", general({"numberOfChildren": 0}), arrives),
    Row("numberOfInfants-number", "how many infants", general({"numberOfInfants": 0}), arrives),
    Row("numberOfPets-number", "how many pets", general({"numberOfPets": 2}), arrives),
    Row("totalPrice-cents", "a price with cents", general({"totalPrice": 480.35}), arrives),
    Row("totalPrice-sum", "a price as programs add it up, without a currency",
        general({"totalPrice": 3 * 33.10, "currency": ABSENT}), arrives_with({"totalPrice": 99.3})),
    Row("currency-text", "the currency of the payment", general({"currency": "USD"}), arrives),
    Row("notes-text", "notes", general({"notes": "Späte Anreise\nnach 22 Uhr"}), arrives),
    Row("comments-text", "comments", general({"comments": "Third stay"}), arrives),
    Row("optional-absent", "what is optional may be left out, all at once", general(_MINIMAL_GENERAL), arrives),
    Row("status-example", "the status of the example, in small letters", general({"status": "confirmed"}), accepted),
    Row("paymentProviderId-example", "the payment provider of the example", general({"paymentProviderId": 77}), arrives),
]

PAYMENT_CHANNELS: Sequence[Row] = [
    Row("SELF", "the host, or the engine, takes the payment", engine({"morChannel": "SELF"}), arrives),
    Row("PMS", "the PMS takes the payment", engine({"morChannel": "PMS"}), arrives),
    Row("others", "nobody else does", engine({"morChannel": "OTA"}), refused("morChannel")),
]

COUNTRY_CODES: Sequence[Row] = [
    Row("codes", "each code of the list is taken", [engine({"guest.address.country": code}) for code in COUNTRIES], arrives),
    Row("others", "codes outside of the list, and names, are not",
        [engine({"guest.address.country": code}) for code in ("XX", "UM", "Spain")], refused("country")),
]
# fmt: on
