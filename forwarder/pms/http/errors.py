"""Why a request to a PMS brought no response. Whether anything was sent is decided here, and nowhere else:

    NotSent      nothing reached the PMS                        → Deferred
    NoResponse   bytes may have, and no whole response came     → InDoubt

Text from the network is shortened and rid of long runs of digits before it is passed on. No address and no header is
quoted: they may hold a password.
"""

from forwarder.pms.responses.record import shortened


class NotSent(Exception):
    """Nothing reached the PMS. `passing`: another try within seconds may succeed. `retry_after_seconds`: as of `Deferred`."""

    def __init__(
        self, reason: str, detail: str, *, passing: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.passing = passing
        self.retry_after_seconds = retry_after_seconds


class NoResponse(Exception):
    """Something may have reached the PMS, and no whole response came back. `status`: of the response that began, unless a GET's;
    0 for none."""

    def __init__(self, reason: str, detail: str, status: int = 0) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail
        self.status = status


def unreachable(why: str) -> NotSent:
    """No connection to the PMS was made, or it had ended before anything was written."""
    return NotSent("pms_unreachable", f"No connection to the PMS: {shortened(why)}.", passing=True)


def not_trusted(why: str) -> NotSent:
    """The certificate that the PMS showed is not believed: of another name, of an authority that is not trusted, or expired."""
    return NotSent("pms_not_trusted", f"The PMS's certificate is not trusted: {shortened(why)}.")


def refused_certificate() -> NotSent:
    """The PMS ended the handshake over our certificate, or over the lack of one."""
    detail = "The PMS wants a client certificate: the account has none, or one that the PMS does not take."
    return NotSent("pms_refused_certificate", detail)


def invalid_address(detail: str) -> NotSent:
    """Nothing that HTTP can carry or reach; only a change of the account's settings helps."""
    return NotSent("pms_address_invalid", detail)


def broke_protocol(why: str) -> NoResponse:
    """The response is not HTTP."""
    return NoResponse("pms_broke_protocol", f"The PMS was sent the request; its answer is not HTTP: {shortened(why)}.")


def connection_lost(why: str) -> NoResponse:
    """The connection ended, or was ended, before the response was whole."""
    return NoResponse("pms_connection_lost", f"The connection was lost before the PMS had answered: {shortened(why)}.")
