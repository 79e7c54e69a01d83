"""Kind `website-builder`: the open contract, once for each of an account's websites, under `{base_url}/websites/{websiteId}`."""

from forwarder.pms.http.client import path_segment
from forwarder.pms.kinds.generic.adapter import GenericAdapter
from forwarder.reservation.booking import Booking


class WebsiteBuilderAdapter(GenericAdapter):
    """Pushes to the website that the booking names; the rules see to it that it names one."""

    def _base(self, booking: Booking) -> str | None:
        website = path_segment(booking.website_id or "")
        return None if website is None else f"{self._base_url}/websites/{website}"
