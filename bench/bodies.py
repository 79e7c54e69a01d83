"""The reservations that the load is made of: valid for the booking-engine operation, about 900 bytes, each distinct."""

from datetime import date, timedelta

PROPERTIES = 5_000
_FIRST_ARRIVAL = date(2031, 1, 6)
_GUESTS = ("Ines Carvalho", "Tomas Novak", "Aiko Mori", "Lena Fischer", "Omar Haddad", "Grace Obi", "Pablo Reyes")
_NOTES = (
    "We land late and shall be at the door around half past eleven in the evening; please leave the keys with reception. "
    "A cot for the baby and a quiet room away from the lift would be most welcome."
)


def transaction_id(run: str, number: int) -> str:
    """That of the `number`-th reservation of `run`."""
    return f"{run}-{number:08d}"


def reservation(run: str, number: int) -> bytes:
    """The `number`-th reservation of `run`. Its `transactionId` and its guest's e-mail
    are unique to it and to `run`; no two of a run are for the same nights of a property."""
    lap, place = divmod(number, PROPERTIES)
    arrival = _FIRST_ARRIVAL + timedelta(days=7 * lap)
    departure = arrival + timedelta(days=2 + place % 5)
    name = _GUESTS[number % len(_GUESTS)]
    first, last = name.split()
    return (
        f'{{"morChannel":"SELF","propertyId":{10_000 + place},"roomId":"{place % 4 + 1}",'
        f'"arrivalDate":"{arrival}","departureDate":"{departure}","arrivalEstimatedTime":"23:30",'
        f'"departureEstimatedTime":"10:00","guest":{{"name":"{name}","firstName":"{first}","lastName":"{last}",'
        f'"email":"{run}.{number}@example.com","phone":"+351910{number % 1_000_000:06d}","address":{{'
        f'"line1":"Rua da Prata {number % 400 + 1}","line2":"","postalCode":"1100-{number % 900 + 100}","city":"Lisboa",'
        f'"state":"Lisboa","country":"PT"}}}},"numberOfGuests":3,"numberOfAdults":2,"numberOfChildren":1,'
        f'"numberOfInfants":0,"numberOfPets":0,"totalPrice":{240 + number % 900}.75,"currency":"EUR",'
        f'"notes":"{_NOTES}","comments":"Second stay","paymentProviderId":"77","transactionId":"{transaction_id(run, number)}",'
        f'"status":"CONFIRMED"}}'
    ).encode()
