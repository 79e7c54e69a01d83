"""The ingress over HTTP: its addresses."""

from starlette.routing import Route

from forwarder.http.messages import Routes
from forwarder.ingress.bulk.endpoint import BulkEndpoint
from forwarder.ingress.cancel import CancelEndpoint
from forwarder.ingress.guard import Guard
from forwarder.ingress.parts import IngressParts
from forwarder.ingress.publish.publisher import SubmissionPublisher
from forwarder.ingress.submit import SubmitEndpoint
from forwarder.reservation.bulk import MAX_BULK_BYTES


def ingress_routes(parts: IngressParts) -> Routes:
    """The routes of both operations, of bulks of them, and of cancellation. They share the bounds on what is under way, and one
    memory of recent keys."""
    guard, publisher = Guard(parts), SubmissionPublisher(parts)
    # Longer than a workspace's share, a bulk would never be admitted.
    bulk = BulkEndpoint(parts, publisher, max_bytes=min(MAX_BULK_BYTES, parts.admission.bodies.largest))
    endpoints = {
        "/booking-engine": guard.of(SubmitEndpoint("booking-engine", parts, publisher), "submit"),
        "": guard.of(SubmitEndpoint("general", parts, publisher), "submit"),
        "/bulk": guard.of(bulk, "submit", limited=False),
        "/{id}/cancel": guard.of(CancelEndpoint(parts, publisher.recent), "cancel"),
    }
    return [
        Route(f"/api/v1/vrs/reservations{path}", endpoint, methods=["POST"]) for path, endpoint in endpoints.items()
    ]
