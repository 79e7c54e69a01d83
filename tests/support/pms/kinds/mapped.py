"""Two PMSs as mappings describe them: one of forms and `success`, and one that answers its refusals with HTTP 500."""

from typing import Any, Final

from pydantic import TypeAdapter

from forwarder.pms.mapping.model import MappingOption, PmsMapping

CLOUDBEDS_LIKE: Final = """
auth: {form: header, name: x-api-key}
message: message
reservation:
  id: reservationID
  reference: thirdPartyIdentifier
  status:
    path: status
    confirmed: [confirmed, checked_in]
    cancelled: [canceled]
  record: {totalPrice: grandTotal, finances.remainingBalance: balance}
create:
  path: /postReservation
  encoding: form
  success:
    status: [200]
    when: {success: true}
  errors:
    - {status: [200], when: {success: false}, matches: {message: not available}, becomes: room_unavailable}
    - {status: [200], when: {success: false}, matches: {message: property id}, becomes: property_not_found}
    - {status: [200], when: {success: false}, matches: {message: guest}, becomes: guest_refused}
    - {status: [200], when: {success: false}, becomes: pms_refused}
  body:
    propertyID: propertyId
    sourceID: {constant: ss-7-1}
    thirdPartyIdentifier: reference
    startDate: arrivalDate
    endDate: departureDate
    guestFirstName: {field: guest.firstName, default: Guest}
    guestLastName: {field: guest.lastName, default: Guest}
    guestEmail: guest.email
    "rooms[0][roomTypeID]": roomId
    "rooms[0][quantity]": {constant: 1}
    "adults[0][quantity]": {field: [numberOfAdults, numberOfGuests], default: 1}
    paymentMethod: {constant: cash}
find:
  path: /getReservations
  query: {propertyID: propertyId, sourceReservationId: reference}
  success:
    status: [200]
    when: {success: true}
  items: data
cancel:
  method: PUT
  path: /putReservation
  encoding: form
  body:
    reservationID: pmsReservationId
    status: {constant: canceled}
  success:
    status: [200]
    when: {success: true}
  errors:
    - {when: {success: false}, matches: {message: not found}, becomes: cancelled}
"""
"""The simulator speaks it."""

LODGIFY_LIKE: Final = """
auth: {form: header, name: X-ApiKey}
headers: {X-Version: "2"}
message: message
reservation:
  reference: source_text
  status:
    path: status
    confirmed: [Booked]
    cancelled: [Declined, Refused]
  record:
    paymentUrl: payment.link
    totalPrice: total
    currency: currency
    accessCode: key_code
    notes: notes
    finances.totalPrice: total
    finances.totalPaid: paid
    finances.tax: taxes
create:
  path: /v1/reservation/booking
  id: ""
  errors:
    - {status: [500], when: {code: 666}, matches: {message: not available|closed}, becomes: room_unavailable}
    - {status: [500], when: {code: 666}, becomes: pms_refused}
    - {status: [500], when: {code: 777}, becomes: deferred}
    - {status: [400], when: {code: 900}, becomes: property_not_found}
    - {status: [404, 418], becomes: deferred}
    - {status: [504], becomes: in_doubt}
    - {status: [409], becomes: room_unavailable}
  body:
    property_id: {field: propertyId, as: integer}
    arrival: {field: arrivalDate, dateFormat: "%d/%m/%Y"}
    departure: departureDate
    guest.name: guest.name
    guest.email: guest.email
    rooms.0.room_type_id: {field: roomId, as: integer}
    rooms.0.people: {field: [numberOfAdults, numberOfGuests], default: 1}
    rooms.0.nights: nights
    total: {field: totalPrice, as: text}
    total_cents: {field: totalPrice, as: minorUnits}
    total_number: totalPrice
    currency_code: currency
    source_text: reference
    bookability: {constant: InstantBooking}
    instant: {constant: true}
    card.number: card.cardNumber
find:
  path: /v1/reservation
  query: {property: propertyId}
  items: items
  pages: {query: page, most: 3}
  errors:
    - {status: [500], when: {code: 404}, becomes: absent}
cancel:
  method: DELETE
  path: "/v1/reservation/{pmsReservationId}"
  errors:
    - {status: [404, 500], when: {code: 404}, becomes: cancelled}
    - {status: [500], when: {code: 666}, becomes: cancellation_refused}
"""
"""A PMS that answers a create with the bare id, lists without a filter, and refuses with HTTP 500."""


def mapping_of(given: str | dict[str, Any]) -> PmsMapping:
    mapping: PmsMapping = TypeAdapter(MappingOption).validate_python(given)
    return mapping
