"""The audit trail, newest first."""

from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json

from forwarder.console.guard import Visit
from forwarder.console.responses import Page, address
from forwarder.console.service import ConsoleParts
from forwarder.http.paging import LARGEST_ID, positive
from forwarder.store.audit import AuditEntry, AuditFilter

_ROWS: Final = 50


class AuditPages:
    """Who did what."""

    def __init__(self, parts: ConsoleParts) -> None:
        self._trail = parts.backend.trail

    async def list(self, visit: Visit) -> Page:
        who, action, workspace = visit.query("who"), visit.query("action"), visit.query("workspace")
        wanted = AuditFilter(None, who or None, action or None, workspace or None)
        before = positive(visit.query("before"), LARGEST_ID)
        found = await self._trail.entries(wanted, before=before, limit=_ROWS + 1)
        more = None
        if len(found) > _ROWS:
            more = address("/audit", who=who, action=action, workspace=workspace, before=found[_ROWS - 1].number)
        values = {"entries": [_row(each) for each in found[:_ROWS]], "more": more}
        return Page("audit.html", {**values, "who": who, "action": action, "workspace": workspace})


def _row(entry: AuditEntry) -> Mapping[str, Any]:
    details = {name: value for name, value in from_json(entry.details).items() if value not in (None, False)}
    return {"entry": entry, "details": ", ".join(f"{name}: {_text(value)}" for name, value in details.items())}


def _text(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
