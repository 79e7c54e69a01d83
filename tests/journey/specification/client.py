"""A client of the reservation service, written from its specification and nothing else: a caller who never heard of this forwarder.
What is not answered is sent again until it is, as it was."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

_PAUSES_SECONDS = [0.2] * 100


class Refused(Exception):
    """The service says that the request is wrong."""


class ReservationService:
    """As one integration account sees it."""

    def __init__(self, base_url: str, token: str, workspace_id: str, integration_account_id: str) -> None:
        self._base_url = base_url
        self._headers = {
            "Authorization": f"Bearer {token}",
            "workspaceId": workspace_id,
            "integrationAccountId": integration_account_id,
            "Content-Type": "application/json",
        }

    def create(self, reservation: Mapping[str, Any]) -> Any:
        """Section 4.2: the reservation record."""
        return self._ask("POST", "/api/v1/vrs/reservations", reservation)["data"]

    def create_for_booking_engine(self, reservation: Mapping[str, Any]) -> None:
        """Section 4.1, which does not say what the answer is."""
        self._ask("POST", "/api/v1/vrs/reservations/booking-engine", reservation)

    def reservations(self) -> Iterator[Any]:
        """Sections 4.3 and 8: all of them, page by page."""
        cursor = "1"
        while cursor:
            page = self._ask("GET", f"/api/vrs/reservations?limit=200&cursor={cursor}")
            yield from page["data"]
            cursor = page["meta"]["cursors"].get("next")

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base_url + path, content, self._headers, method=method)
        for pause in _PAUSES_SECONDS:
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < http.client.INTERNAL_SERVER_ERROR:
                    raise Refused(error.read().decode()) from error
            except (OSError, http.client.HTTPException):
                pass  # the connection was lost, and nobody knows whether the request was
            time.sleep(pause)
        raise TimeoutError(f"{method} {path} is not answered")
