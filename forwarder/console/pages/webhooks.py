"""Webhooks: the endpoints of every workspace, and the deliveries to each."""

from typing import Final

from forwarder.console.guard import Visit
from forwarder.console.responses import Go, Page, address
from forwarder.console.service import ConsoleParts
from forwarder.http.paging import LARGEST_ID, positive
from forwarder.store.deliveries import DeliveryStatus

_ROWS: Final = 50


class WebhookPages:
    """Endpoints and their deliveries."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._webhooks = parts.webhooks

    async def list(self, _visit: Visit) -> Page:
        return Page("webhooks.html", {"endpoints": await self._webhooks.endpoints(None)})

    async def show(self, visit: Visit) -> Page:
        endpoint = await self._webhooks.get(visit.request.path_params["id"], workspace_id=None)
        before, named = positive(visit.query("before"), LARGEST_ID), visit.query("status")
        tried = visit.query("tried") == "yes"
        status = DeliveryStatus(named) if named in set(DeliveryStatus) else None
        found = await self._webhooks.deliveries(
            endpoint.id, workspace_id=None, status=status, before=before, limit=_ROWS + 1, tried=tried
        )
        path = f"/webhooks/{endpoint.id}"
        onward = {"status": status, "tried": "yes" if tried else None}
        more = address(path, **onward, before=found[_ROWS - 1].id) if len(found) > _ROWS else None
        values = {"endpoint": endpoint, "deliveries": found[:_ROWS], "more": more}
        return Page("webhook.html", {**values, "status": status, "statuses": list(DeliveryStatus), "tried": tried})

    async def act(self, visit: Visit) -> Go | Page:
        endpoint_id = visit.request.path_params["id"]
        path = address(f"/webhooks/{endpoint_id}")
        match visit.form.text("do"):
            case "enable":
                await self._webhooks.enable(endpoint_id, workspace_id=None)
                return Go(path, "It is posted to again, events from now on.")
            case "disable":
                await self._webhooks.disable(endpoint_id, workspace_id=None)
                return Go(path, "The webhook is disabled; its pending deliveries are stopped.")
            case "resend":
                endpoint = await self._webhooks.get(endpoint_id, workspace_id=None)
                if not endpoint.enabled:
                    return Go(path, "Nothing is sent to a disabled endpoint: enable it first.")
                delivery = positive(visit.form.text("delivery"), LARGEST_ID) or 0
                await self._webhooks.resend(endpoint_id, delivery, workspace_id=None)
                return Go(path, f"Delivery {delivery} is sent again soon.")
            case _:
                return Go(path, "There is no such action; nothing was changed.")
