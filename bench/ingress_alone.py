"""The ingress's application on parts that cost next to nothing, so that what it costs is its own. Called or served here."""

import asyncio
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from starlette.types import ASGIApp, Message

from forwarder.http.health import Health, health_routes
from forwarder.http.messages import Admission
from forwarder.http.server import HttpApp
from forwarder.ingress.message import IngressParts
from forwarder.ingress.routes import ingress_routes
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import SystemClock
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import DEFAULT_FILTERS, Filters, Order, Page, SimilarSubmission, StoredSubmission
from forwarder.store.lists.reader import Reader
from forwarder.tenancy.access import Access, RateLimits
from forwarder.tenancy.port import Account, ApiKey, new_token, token_hash
from forwarder.tenancy.sealing import CardSealer
from forwarder.tenancy.sql.directory import CacheTimes, LookupCache
from forwarder.topics.codec import MessageSigner
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import ConsumedMessage, Publisher
from forwarder.topics.port import Message as Published
from tests.support.memory.audit import memory_audit

POST_PATH: Final = "/api/v1/vrs/reservations/booking-engine"
BULK_PATH: Final = "/api/v1/vrs/reservations/bulk"
ACCOUNT = Account("bench-generic", "bench", "generic", "http://pms.test", "")
_TOKEN = new_token(b"bench")
HEADERS = {
    "host": "127.0.0.1:8000",
    "content-type": "application/json",
    "authorization": f"Bearer {_TOKEN}",
    "workspaceid": "bench",
    "integrationaccountid": ACCOUNT.id,
}


class _Directory:
    """Implements `Directory`, with the cache that the real one has in front of the database."""

    def __init__(self) -> None:
        self._clock = clock = SystemClock()
        self._keys = LookupCache(self._key, clock, CacheTimes())
        self._accounts = LookupCache(self._account, clock, CacheTimes())

    async def key(self, token: str) -> ApiKey | None:
        return await self._keys.get(token_hash(token))

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        return await self._accounts.get(account_id)

    async def _key(self, hashed: str) -> ApiKey | None:
        return ApiKey("key-bench", "bench") if hashed == token_hash(_TOKEN) else None

    async def _account(self, account_id: str) -> Account | None:
        return ACCOUNT if account_id == ACCOUNT.id else None


class Nowhere:
    """Implements `Publisher`: all is acknowledged, nothing is kept."""

    async def publish(self, topic: str, messages: Sequence[Published]) -> None:
        pass

    def partition(self, topic: str, key: str) -> int | None:
        return 0  # a log knows it, so that request ids name it

    async def ready(self) -> bool:
        return True


class _EmptyStore(Reader):
    def __init__(self) -> None: ...

    async def submission(self, account_id: str, request_id: str) -> None:
        return None

    async def submissions(self, account_id: str, request_ids: Collection[str]) -> Mapping[str, StoredSubmission]:
        return {}

    async def similar(self, account_id: str, stay_key: str) -> Sequence[SimilarSubmission]:
        return ()

    async def reservation(self, account_id: str, reservation_id: int) -> None:
        return None

    async def page(
        self, account_id: str, *, cursor: int, limit: int, filters: Filters = DEFAULT_FILTERS, order: Order = "asc"
    ) -> Page:
        return Page([], cursor, None, None)

    async def ready(self) -> bool:
        return True


class _SilentTopic:
    """Implements `Tail`."""

    async def seek_to_end(self) -> None:
        pass

    async def seek(self, offsets: Mapping[int, int]) -> None:
        pass

    async def receive(self, *, max_messages: int, wait_seconds: float) -> Sequence[ConsumedMessage]:
        await asyncio.sleep(wait_seconds)
        return []

    async def positions(self) -> Mapping[int, int]:
        return {}


def application(publisher: Publisher, topic: str = "reservations.requests") -> ASGIApp:
    """The application of an ingress process."""
    clock = SystemClock()
    parts = IngressParts(
        publisher=publisher,
        signer=MessageSigner(secrets.token_bytes(32)),
        requests_topic=topic,
        access=Access(_Directory(), clock),
        sealer=CardSealer(),
        ids=RequestIds(secrets.token_bytes(32)),
        reader=_EmptyStore(),
        outcomes=OutcomeListener(_SilentTopic(), clock),
        clock=clock,
        can_cancel=lambda _account: True,
        preview=lambda: Previews(clock),
        limits=RateLimits(clock),
        audit=memory_audit(clock),
        admission=(admission := Admission()),
    )
    return HttpApp([*ingress_routes(parts), *health_routes(Health())], clock, admission=admission)


async def call(app: ASGIApp, path: str, body: bytes) -> None:
    """One POST, without a socket. It has to be taken."""
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in HEADERS.items()],
    }

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        assert message.get("status", 202) in {200, 202}, message

    await app(scope, receive, send)
