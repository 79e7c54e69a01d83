"""What a scripted PMS is asked that only creates and finds: the rest of the port, answered the plainest way."""

from collections.abc import Sequence

from forwarder.reservation.booking import Booking
from forwarder.reservation.outcome import Cancellation, Cancelled, Outcome


class OneWayPms:
    """Creates one by one by the `create` of whoever extends it; whatever is to be cancelled is gone."""

    async def create(self, booking: Booking) -> Outcome:
        raise NotImplementedError

    async def create_many(self, bookings: Sequence[Booking]) -> Sequence[Outcome]:
        return [await self.create(booking) for booking in bookings]

    async def cancel(self, _booking: Booking, _pms_reservation_id: str) -> Cancellation:
        return Cancelled()
