"""Ingress and query in one application on parts in memory, called without a socket; and the worker's part, by hand."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from pydantic_core import from_json, to_json
from starlette.types import ASGIApp

from forwarder.http.contract import contract_routes
from forwarder.http.messages import Admission
from forwarder.http.server import HttpApp
from forwarder.ingress.message import IngressParts, IngressSettings
from forwarder.ingress.routes import ingress_routes
from forwarder.notifier.api import WebhookApi
from forwarder.notifier.webhooks import Webhooks
from forwarder.oversight.audit import Audit
from forwarder.pms.rehearsal import Previews
from forwarder.process.clock import iso
from forwarder.query.routes import Queries, query_routes
from forwarder.reservation.outcome import Cancellation, Status
from forwarder.reservation.record import ResultEvent, SubmissionState, compose_record, result_data
from forwarder.reservation.submission import RequestIds
from forwarder.store.lists.port import StoredSubmission
from forwarder.tenancy.access import Access, RateLimits
from forwarder.tenancy.port import ALL_SCOPES, Account, ApiKey, TenancyUnavailable
from forwarder.topics.codec import MessageSigner, decode_submission, encode_duplicate, encode_result
from forwarder.topics.outcomes import OutcomeListener
from forwarder.topics.port import Message
from tests.support.memory.audit import MemoryTrail
from tests.support.memory.clock import ManualClock, settle
from tests.support.memory.log import MemoryLog, MemoryTail
from tests.support.memory.named_hosts import named_hosts
from tests.support.memory.reader import MemoryReader
from tests.support.memory.webhooks import MemoryDeliveries, MemoryEndpoints
from tests.support.sealing import keyring_of
from tests.support.worker.cards import OneSealingKey

BOOKING_ENGINE_PATH = "/api/v1/vrs/reservations/booking-engine"
GENERAL_PATH = "/api/v1/vrs/reservations"
BULK_PATH = "/api/v1/vrs/reservations/bulk"
SECRET = "a secret of these tests alone"
REQUESTS, RESULTS = "reservations.requests", "reservations.results"

HEADERS = {"Authorization": "Bearer token-alpha", "workspaceId": "alpha", "integrationAccountId": "alpha-1"}
NAMED = {"Request-Id": "named-by-its-caller"}
"""What every request of these tests is called, so that answers can be compared."""
OTHER_ACCOUNT = {**HEADERS, "integrationAccountId": "alpha-2"}
OTHER_WORKSPACE = {"Authorization": "Bearer token-beta", "workspaceId": "beta", "integrationAccountId": "beta-1"}


def refused(problem: Mapping[str, Any]) -> dict[str, Any]:
    """The body that refuses with `problem`."""
    return {"success": False, **problem, "httpRequestId": NAMED["Request-Id"]}


@dataclass
class MemoryDirectory:
    """Implements `Directory`: two workspaces, of which the first has two accounts."""

    away: bool = False
    keys: Mapping[str, ApiKey] = field(
        default_factory=lambda: {
            "token-alpha": ApiKey("key-alpha", "alpha", scopes=ALL_SCOPES),
            "token-beta": ApiKey("key-beta", "beta", scopes=ALL_SCOPES),
        }
    )
    accounts: Mapping[str, Account] = field(
        default_factory=lambda: {
            # Most tests send one body again and again, and mean another reservation each time.
            name: Account(name, name.partition("-")[0], "generic", "https://pms.test", "", duplicate_window_seconds=0)
            for name in ("alpha-1", "alpha-2", "beta-1")
        }
    )

    async def key(self, token: str) -> ApiKey | None:
        self._require()
        return self.keys.get(token)

    async def account(self, account_id: str, workspace_id: str | None = None) -> Account | None:
        self._require()
        return self.accounts.get(account_id)

    def _require(self) -> None:
        if self.away:
            raise TenancyUnavailable("the directory is away")


class Stages:
    """The application and everything under it."""

    def __init__(self, settings: IngressSettings, *, max_waiting: int, admission: Admission) -> None:
        self.clock = ManualClock()
        self.admission = admission
        self.log = MemoryLog(self.clock)
        self.reader = MemoryReader()
        self.trail = MemoryTrail()
        self.directory = MemoryDirectory()
        self.access = Access(self.directory, self.clock)
        self.sealing_key = OneSealingKey()
        self.key_id = self.sealing_key.pair.key_id
        self.unsealer = keyring_of(SECRET)
        self.ids = RequestIds(b"0123456789abcdef")
        self.signer = MessageSigner(b"0123456789abcdef")
        self.tail: MemoryTail = self.log.tail(RESULTS)
        self.outcomes = OutcomeListener(self.tail, self.clock, max_waiting=max_waiting)
        ingress = IngressParts(
            publisher=self.log,
            signer=self.signer,
            requests_topic=REQUESTS,
            access=self.access,
            sealer=self.sealing_key.sealer,
            ids=self.ids,
            reader=self.reader,
            outcomes=self.outcomes,
            clock=self.clock,
            can_cancel=lambda account: account.kind != "one-way",
            preview=lambda: Previews(self.clock),
            limits=RateLimits(self.clock),
            audit=Audit(self.trail, self.clock),
            admission=admission,
            settings=settings,
        )
        query = Queries(self.access, self.reader, self.ids, self.outcomes, self.clock)
        self.endpoints, self.deliveries = MemoryEndpoints("alpha", "beta"), MemoryDeliveries()
        webhooks = Webhooks(
            self.endpoints, self.deliveries, keyring_of(SECRET), named_hosts(), self.clock, ingress.audit
        )
        hooks = WebhookApi(self.access, webhooks, ingress.limits).routes()
        self.routes = [*ingress_routes(ingress), *query_routes(query), *hooks, *contract_routes()]
        self.app: ASGIApp = HttpApp(self.routes, self.clock, admission=admission)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app), base_url="http://forwarder.test", headers=HEADERS | NAMED
        )

    @property
    def requests(self) -> list[Message]:
        """What was published for the worker: all of it signed."""
        published = self.log.topics[REQUESTS]
        assert all(self.signer.verifies(each) for each in published)
        return published

    def published(self) -> dict[str, Any]:
        """The value of the last message published for the worker."""
        value: dict[str, Any] = from_json(self.requests[-1].value)
        return value

    async def requested(self, count: int = 1) -> Message:
        """The last message for the worker, once so many have come and their callers wait, if they do."""
        await self.log.holds(REQUESTS, count)
        await settle()
        return self.requests[-1]

    def ingest(
        self,
        message: Message,
        status: Status = Status.PENDING,
        *,
        revision: int = 0,
        cancellation: Cancellation | None = None,
        **known: Any,
    ) -> StoredSubmission:
        """Store a submission as the worker would; the id counts up from 1 and stays with it."""
        submission = decode_submission(message)
        earlier = [row.id for _, row in self.reader.rows if row.request_id == submission.request_id]
        standing = SubmissionState(
            id=earlier[0] if earlier else len(self.reader.rows) + 1,
            request_id=submission.request_id,
            status=status,
            created_at=iso(submission.accepted_at),
            updated_at=iso(self.clock.now()),
            **known,
        )
        record = to_json(compose_record(submission.reservation, standing)).decode()
        stored = StoredSubmission(
            standing.id,
            submission.request_id,
            status,
            iso(submission.accepted_at),
            standing.updated_at,
            submission.fingerprint,
            record,
            (),
            standing.problem,
            submission.property_id,
            revision,
            cancellation,
        )
        self.reader.put(submission.account_id, stored)
        return stored

    async def repeat(self, message: Message, original: StoredSubmission) -> None:
        """Find that a submission is `original` sent again, and tell who waits for it, as the worker would."""
        submission = decode_submission(message)
        self.reader.duplicates[submission.request_id] = original.request_id, submission.fingerprint
        await self.log.publish(RESULTS, [encode_duplicate(submission, original.request_id, iso(self.clock.now()))])

    async def settle(
        self,
        message: Message,
        status: Status,
        *,
        revision: int = 1,
        cancellation: Cancellation | None = None,
        **known: Any,
    ) -> StoredSubmission:
        """Store the outcome of a submission and announce it, as the worker would."""
        stored = self.ingest(message, status, revision=revision, cancellation=cancellation, **known)
        submission = decode_submission(message)
        data = result_data(
            request_id=submission.request_id,
            workspace_id=submission.workspace_id,
            account_id=submission.account_id,
            status=status,
            record=from_json(stored.record),
            cancellation=cancellation,
        )
        event = ResultEvent(submission.request_id, revision, status, submission.key, stored.updated_at, data)
        await self.log.publish(RESULTS, [encode_result(event)])
        return stored


@asynccontextmanager
async def stages(
    settings: IngressSettings | None = None, *, max_waiting: int = 100, admission: Admission | None = None
) -> AsyncIterator[Stages]:
    """The stages, running; stopped and closed afterwards."""
    built = Stages(settings or IngressSettings(), max_waiting=max_waiting, admission=admission or Admission())
    following = asyncio.create_task(built.outcomes.run())
    await asyncio.sleep(0)
    async with built.client:
        yield built
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
