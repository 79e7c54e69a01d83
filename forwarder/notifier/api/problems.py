"""Why a call that manages webhooks is refused: what its action raises, as a problem. The one place that knows both. Pure."""

from typing import Final

from forwarder.notifier.api.reading import invalid
from forwarder.notifier.webhooks import EndpointDisabled
from forwarder.reservation.problem import Fault, Problem
from forwarder.reservation.problems import service, webhooks
from forwarder.store.submissions.port import StoreUnavailable
from forwarder.tenancy.port import NotKnown, TenancyUnavailable
from forwarder.tenancy.webhooks import TooManyEndpoints
from forwarder.webhooks.port import BadTarget

LIVE_KEY_NEEDED: Final = webhooks.LIVE_KEY_NEEDED.problem("Use a live key of the workspace: fwd_live_….")


class NoDelivery(LookupError):
    """The webhook is there, and has no such delivery."""


Refusal = (
    NotKnown | NoDelivery | EndpointDisabled | TooManyEndpoints | BadTarget | TenancyUnavailable | StoreUnavailable
)
"""What an action may raise. Of the webhooks of another workspace it raises what it raises of those that are not there."""


def problem_of(error: Refusal) -> Problem:
    """What the caller is told."""
    match error:
        case NotKnown():
            return webhooks.WEBHOOK_NOT_FOUND.problem("This workspace has no webhook of that id.")
        case NoDelivery():
            return webhooks.DELIVERY_NOT_FOUND.problem("This webhook has no delivery of that id.")
        case EndpointDisabled():
            return webhooks.WEBHOOK_DISABLED.problem('Enable it first: PATCH it with {"enabled": true}.')
        case TooManyEndpoints():
            return webhooks.TOO_MANY_WEBHOOKS.problem(str(error))
        case BadTarget():
            return invalid([Fault("/url", error.code, str(error))])
        case TenancyUnavailable():
            return service.TENANCY_UNAVAILABLE.problem("Ask again in a moment.")
        case StoreUnavailable():
            return service.STORE_UNAVAILABLE.problem("Ask again in a moment.")
