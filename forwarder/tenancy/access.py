"""Who may call, and how often: from a request's headers to the caller, or to the problem that refuses it; and rate limits.

Without a key, a caller learns nothing. With a key, it does not learn whether other workspaces exist or what they own: the response
is the same for resources of others and for unknown ones. Clients that guess tokens are throttled.

A key that may make `requests` calls in `seconds` has a bucket of that many tokens, full at first, that refills at requests/seconds
per second, so that any t seconds see at most requests · (1 + t / seconds) calls. So has a workspace, whose keys share it.

Processes that serve one key decide from their own buckets, and exchange their usage: each reports the calls that it admitted since
its last exchange, and learns how much of the key's quota all processes together have used. It does so `EXCHANGE_SECONDS` after the
last exchange, or once a tenth of a quota is unreported, but `MIN_PAUSE_SECONDS` after it at the earliest. So

- A caller that keeps to the limit is never refused: a process believes the bucket to be fuller than it is, never emptier.
- N processes admit, in any t seconds, at most requests · (1 + (t + e) / seconds) + (N - 1) · b calls. `e` is the longest time from
  one exchange of a process to the end of its next, `b` the maximum that one process admits between them: a tenth of `requests`, and
  the calls during the minimal pause and the exchange; never more than `requests`. The excess is paid back.
- While the database is unavailable each process decides alone, and never reports these calls: at most N times the limit."""

import asyncio
import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from forwarder.http.messages import Response, retry_after
from forwarder.observability.metrics import BAD_TOKENS
from forwarder.process.addresses import client_of, read_address
from forwarder.process.clock import Clock, iso
from forwarder.process.loops import Where, first_of, forever
from forwarder.process.shares import ROUNDING, TokenBucket
from forwarder.reservation import problems as catalogue
from forwarder.reservation.problems import Problem
from forwarder.reservation.submission import is_test, shadow_id
from forwarder.tenancy import port
from forwarder.tenancy.port import Account, ApiKey, Directory, Network, RateLimit, Scope, Scopes, TenancyUnavailable

if TYPE_CHECKING:
    from forwarder.tenancy.sql.directory import SqlKeyUses, SqlUsage

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller and its integration account: with a test key, the shadow of the account named in the request."""

    workspace_id: str
    account: Account
    key_id: str
    limit: RateLimit | None = None
    scopes: Scopes = port.DEFAULT_SCOPES
    networks: tuple[Network, ...] = ()
    shared_limit: RateLimit | None = None


_OF_WORKSPACE: Final = {
    "Authorization": "Bearer and the API key",
    "workspaceId": "the identifier of the workspace that the API key belongs to",
}
_OF_ACCOUNT: Final = {**_OF_WORKSPACE, "integrationAccountId": "the identifier of the integration account to use"}
"""The headers that a caller is named by, and what each holds."""
_FIELDS: Final = tuple(name.lower().encode() for name in _OF_ACCOUNT)
_NOT_AN_OPERATOR: Final = catalogue.UNAUTHENTICATED.problem(
    "This is not a valid live key. Operators create one with: forwarder key add --workspace … --scope operate."
)


class Access:
    """Authenticates the HTTP callers of a process; its stages share it, so that they count bad tokens per address together."""

    def __init__(self, directory: Directory, clock: Clock, bad_tokens: "BadTokens | None" = None) -> None:
        self._directory, self._clock = directory, clock
        self._bad_tokens, self.uses = bad_tokens or BadTokens(clock), KeyUses()
        self._callers: dict[tuple[bytes | None, ...], tuple[Caller, float]] = {}

    def recent(self, fields: Mapping[bytes, bytes]) -> Caller | None:
        """The caller that `caller` returned for these fields within the last second; keeps 1,024 of them, tokens included."""
        found = self._callers.get(tuple(map(fields.get, _FIELDS)))
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    async def caller(self, fields: Mapping[bytes, bytes], address: str) -> Caller | Problem:
        """The caller identified by section 5's three headers, who calls from `address`. `fields`: the request's headers by
        lower-case name. What it may do is another question: `forbidden`. Raises `TenancyUnavailable`."""
        headers = {name.decode(): fields[name].decode("latin-1") for name in _FIELDS if name in fields}
        named = _named(headers, _OF_ACCOUNT)
        if isinstance(named, Problem):
            return named
        key = await self._key(named, address)
        if isinstance(key, Problem):
            return key
        account, account_id = None, named["integrationAccountId"]
        if not is_test(account_id):  # a shadow cannot be named: a test key names the real account
            account = await self._directory.account(shadow_id(account_id) if key.test else account_id, key.workspace_id)
        if account is None or account.workspace_id != key.workspace_id:
            return catalogue.ACCOUNT_NOT_FOUND.problem(
                "The workspace has no integration account with the ID in the integrationAccountId header. Your operator can list "
                "valid IDs with `forwarder account list`."
            )
        caller = Caller(key.workspace_id, account, key.id, key.limit, key.scopes, key.networks, key.shared_limit)
        if key.expires_at is None:
            if len(self._callers) >= 1024:  # noqa: PLR2004 - as `recent` says
                self._callers.clear()
            self._callers[tuple(map(fields.get, _FIELDS))] = (caller, self._clock.monotonic() + 1.0)
        return caller

    async def workspace_key(self, headers: Mapping[str, str], address: str) -> ApiKey | Problem:
        """The key of a caller who acts for a whole workspace, whatever account it names. Raises `TenancyUnavailable`."""
        named = _named(headers, _OF_WORKSPACE)
        return named if isinstance(named, Problem) else await self._key(named, address)

    async def operator(self, token: str, address: str) -> ApiKey | Problem:
        """The live key with that token, if it may do what operators do, from `address`. Raises `TenancyUnavailable`."""
        key = await self._directory.key(token) if token else None
        if key is None:
            return (self._throttled(address) if token else None) or _NOT_AN_OPERATOR
        refused = self._expired(key) or forbidden(key, "operate", address) or (_NOT_AN_OPERATOR if key.test else None)
        if refused is None:
            self.uses.add(key.id)
        return refused or key

    async def _key(self, named: Mapping[str, str], address: str) -> ApiKey | Problem:
        """The key of a caller who is `named` by all headers, with the key's own workspace; or the problem."""
        missing = [name for name, value in named.items() if not value]
        words = named["Authorization"].split()
        token = words[1] if len(words) == 2 and words[0].lower() == "bearer" else None  # noqa: PLR2004 - scheme and token
        key = None if token is None else await self._directory.key(token)
        if key is None:
            if token is not None and (throttled := self._throttled(address)) is not None:
                return throttled
            others = [name for name in missing if name != "Authorization"]
            wrong = "The Authorization header is missing or malformed."
            wrong = wrong if token is None else "The API key is unknown or was revoked."
            also = f" {_described(others)}" if others else ""
            return catalogue.UNAUTHENTICATED.problem(f"{wrong} Send it as: Authorization: Bearer <API key>.{also}")
        if (expired := self._expired(key)) is not None:
            return expired
        self.uses.add(key.id)
        if missing:
            return catalogue.MISSING_HEADER.problem(_described(missing))
        if named["workspaceId"] == key.workspace_id:
            return key
        return catalogue.WRONG_WORKSPACE.problem(
            "The API key does not give access to the workspace named by the workspaceId header. Send the workspace of the key."
        )

    def _expired(self, key: ApiKey) -> Problem | None:
        if key.expires_at is None or key.expires_at > self._clock.now():
            return None
        return catalogue.KEY_EXPIRED.problem(f"The API key expired at {iso(key.expires_at)}. Ask for another one.")

    def _throttled(self, address: str) -> Problem | None:
        if (seconds := self._bad_tokens.count(address)) is None:
            return None
        said = f"Too many unknown API keys came from this address. Send a valid one, or retry in {seconds} seconds."
        return replace(catalogue.TOO_MANY_BAD_TOKENS.problem(said), retry_after=seconds)


def _named(headers: Mapping[str, str], needed: Mapping[str, str]) -> dict[str, str] | Problem:
    """The values of the `needed` headers, empty where one is missing. Lines of one name come joined by commas; no value has one."""
    named, conflicting = dict[str, str](), list[str]()
    for name in needed:
        line = headers.get(name.lower(), "")
        named[name], *others = {each.strip() for each in line.split(",")} if "," in line else (line.strip(),)
        if others:
            conflicting.append(name)
    if not conflicting:
        return named
    what = f"{conflicting[0]} came" if len(conflicting) == 1 else f"{' and '.join(conflicting)} each came"
    return catalogue.CONFLICTING_HEADERS.problem(f"The header {what} more than once, with different values. Send one.")


def _described(missing: Sequence[str]) -> str:
    headers = " and ".join(f"{name} ({_OF_ACCOUNT[name]})" for name in missing)
    return f"Missing: {headers}. Every request carries {'it' if len(missing) == 1 else 'them'} as a header."


def forbidden(holder: Caller | ApiKey, scope: Scope, address: str) -> Problem | None:
    """The refusal of an operation that needs `scope`, called from `address`; None if the key allows it."""
    caller = read_address(address)
    if holder.networks and (caller is None or all(caller not in network for network in holder.networks)):
        return catalogue.ADDRESS_NOT_ALLOWED.problem(
            f"The API key may not be used from the address that this request came from, {address or 'which is unknown'}."
        )
    if scope not in holder.scopes:
        return catalogue.INSUFFICIENT_SCOPE.problem(
            f"The API key lacks the scope {scope}, which this operation needs. It has: {port.write_scopes(holder.scopes)}.",
            extra={"scope": scope},
        )
    return None


DEFAULT_PER_MINUTE: Final = 60
_WINDOW_SECONDS: Final = 60.0


class BadTokens:
    """Counts recent bad tokens per address. An address may send `per_minute`, and as many again each minute."""

    def __init__(self, clock: Clock, per_minute: int = DEFAULT_PER_MINUTE, *, max_addresses: int = 10_000) -> None:
        self._clock, self._max_addresses = clock, max_addresses
        self._interval = _WINDOW_SECONDS / per_minute
        self._full_at: OrderedDict[object, float] = OrderedDict()
        self._unlogged, self._log_due = 0, -math.inf
        self._refused, self._throttled = (BAD_TOKENS.labels(answer) for answer in ("refused", "throttled"))

    def count(self, address: str) -> int | None:
        """Counts one from `address`. If that were too many, it is not counted: returns the seconds until it would be."""
        now, source = self._clock.monotonic(), client_of(address)
        full_at = max(self._full_at.pop(source, now), now)
        too_soon = full_at + self._interval - now - _WINDOW_SECONDS
        self._full_at[source] = full_at if too_soon > 0 else full_at + self._interval
        if len(self._full_at) > self._max_addresses:
            self._full_at.popitem(last=False)
        if too_soon <= 0:
            self._refused.inc()
            return None
        self._throttled.inc()
        self._unlogged += 1
        if now >= self._log_due:  # at most one line a minute
            _log.warning("tokens.throttled", address=address, since_last=self._unlogged)
            self._unlogged, self._log_due = 0, now + _WINDOW_SECONDS
        return max(math.ceil(too_soon), 1)


class KeyUses(set[str]):
    """The ids of the keys whose callers this process looked up since the last write: every few seconds while a caller calls."""

    async def write(self, store: "SqlKeyUses", clock: Clock) -> None:
        """Writes them down and forgets them. Raises `TenancyUnavailable`; they stay noted then, as after any other exception."""
        if used := set(self):
            self.clear()
            try:
                await store.used(used, clock.now())
            except BaseException:
                self.update(used)
                raise


async def write_uses(uses: KeyUses, store: "SqlKeyUses", clock: Clock) -> None:
    """Writes every minute, forever, through outages of the database."""

    async def step() -> None:
        await clock.sleep(60)
        await uses.write(store, clock)

    await forever(step, name=Where.KEY_USES, clock=clock, outages=(TenancyUnavailable,))


EXCHANGE_SECONDS: Final = 0.5
MIN_PAUSE_SECONDS: Final = 0.05
RATE: Final = r"([1-9][0-9]{0,8})/([1-9][0-9]{0,4})s"  # of a limit: `100/60s` is 100 calls in 60 seconds


def read_limit(text: str) -> RateLimit:
    """The limit in `text`, in the format of `RATE`. Raises `ValueError` with an example."""
    if (written := re.fullmatch(RATE, text)) is None:
        raise ValueError("A rate limit is written as calls and whole seconds, such as 100/60s.")
    return RateLimit(int(written[1]), int(written[2]))


@dataclass(frozen=True, slots=True)
class Allowance:
    """`remaining`: how many more calls would be admitted now. `more_in`: whole seconds until one more would be. `retry_in`: until
    the refused call would be, else 0. `shared`: the limit is the workspace's."""

    limit: RateLimit
    admitted: bool
    remaining: int
    more_in: int
    retry_in: int = 0
    shared: bool = False


class Consumption(NamedTuple):
    """The calls of a key within the last `age` seconds, since the last report: `share` of the quota (1.0 is all) over `seconds`."""

    key: str
    share: float
    age: float
    seconds: int


class RateLimits:
    """The buckets of this process for the `max_keys` keys used last; others have full ones until the next exchange. `default`: the
    limit of keys without their own. `report_due` is set when so much is unreported that other processes should know soon."""

    def __init__(self, clock: Clock, default: RateLimit | None = None, *, max_keys: int = 10_000) -> None:
        self._clock, self._default, self._max_keys = clock, default, max_keys
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._unreported: dict[str, _Bucket] = {}
        self.report_due = asyncio.Event()

    def take(
        self, key_id: str, limit: RateLimit | None, count: int = 1, shared: tuple[str, RateLimit | None] = ("", None)
    ) -> Allowance | None:
        """Admits `count` calls of a key, all or none; None if it has no limit. A full bucket admits more than a whole quota, and is
        overdrawn by the rest. With 0, nothing is taken. `shared`: the key's workspace, and the limit that its keys share: what
        either limit refuses is refused, and costs neither. The allowance is that of the limit that allows less."""
        workspace_id, of_all = shared
        own = limit or self._default
        if own is None and of_all is None:
            return None
        limits, now = ((key_id, own), (f"workspace:{workspace_id}", of_all)), self._clock.monotonic()
        buckets = {name: self._bucket(name, each) for name, each in limits if each is not None}
        delays = {name: bucket.delay(count, now) for name, bucket in buckets.items()}
        refusing = {name: delay for name, delay in delays.items() if delay}
        if not refusing and count:
            for name, bucket in buckets.items():
                bucket.debit(count, now)
                bucket.since = bucket.since if bucket.unreported else now
                bucket.unreported += count
                self._unreported[name] = bucket
                if bucket.unreported >= bucket.limit.requests / 10:
                    self.report_due.set()
        fullest = min(buckets, key=lambda name: buckets[name].left(now))
        tightest = max(refusing, key=refusing.__getitem__) if refusing else fullest
        return buckets[tightest].allowance(now, admitted=not refusing, count=count, shared=tightest != key_id)

    def _bucket(self, key_id: str, limit: RateLimit) -> "_Bucket":
        bucket = self._buckets.get(key_id)
        if bucket is None or bucket.limit != limit:
            bucket = self._buckets[key_id] = _Bucket(limit)
            if len(self._buckets) > self._max_keys:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key_id)
        return bucket

    async def exchange(self, usage: "SqlUsage") -> None:
        """Reports the calls since the last exchange to `usage`, and learns the others' usage; does nothing without calls. Raises
        `TenancyUnavailable`; the unreported calls are then known only here."""
        unreported, self._unreported = self._unreported, {}
        self.report_due.clear()
        if not unreported:
            return
        now, consumed = self._clock.monotonic(), []
        for key_id, bucket in unreported.items():
            share = bucket.unreported / bucket.limit.requests
            consumed.append(Consumption(key_id, share, now - bucket.since, bucket.limit.seconds))
            bucket.unreported = 0
        for key_id, used in (await usage.add(consumed)).items():
            unreported[key_id].learn(used, as_of=now)


async def exchange_usage(limits: RateLimits, usage: "SqlUsage", clock: Clock) -> None:
    """Exchanges whenever it is due, forever, through outages of the database."""

    async def step() -> None:
        await clock.sleep(MIN_PAUSE_SECONDS)
        await first_of(limits.report_due.wait(), clock.sleep(EXCHANGE_SECONDS - MIN_PAUSE_SECONDS))
        await limits.exchange(usage)

    await forever(step, name=Where.RATE_LIMITS, clock=clock, outages=(TenancyUnavailable,))


class _Bucket(TokenBucket):
    """One key's bucket. It has admitted `unreported` calls since `since`."""

    __slots__ = ("limit", "since", "unreported")

    def __init__(self, limit: RateLimit) -> None:
        super().__init__(limit.requests / limit.seconds, limit.requests)
        self.limit, self.unreported, self.since = limit, 0, 0.0

    def delay(self, tokens: float, now: float) -> float:
        """Seconds until so many calls are admitted; more than a quota are admitted together with a full bucket."""
        return super().delay(min(tokens, self.burst), now)

    def allowance(self, now: float, *, admitted: bool, count: int, shared: bool) -> Allowance:
        interval = self.limit.seconds / self.limit.requests
        free = self.left(now) + ROUNDING / interval
        remaining = max(math.floor(free), 0)
        more_in = max(math.ceil((remaining + 1 - free) * interval), 1)
        retry_in = 0 if admitted else max(math.ceil(self.delay(count, now)), more_in)
        return Allowance(self.limit, admitted, remaining, more_in, retry_in, shared)

    def learn(self, used: float, *, as_of: float) -> None:
        """Applies the share of the quota used by all processes, which excludes calls taken here since `as_of`."""
        full_at = as_of + used * self.limit.seconds
        if self.unreported:
            full_at = max(full_at, self.since) + self.unreported * self.limit.seconds / self.limit.requests
        self.full_at = max(self.full_at, full_at)


def rate_limited(allowance: Allowance) -> Problem:
    limit, whose = allowance.limit, "All API keys of this workspace together" if allowance.shared else "This API key"
    return catalogue.RATE_LIMITED.problem(
        f"{whose} may submit, cancel or manage webhooks {limit.requests} times in {limit.seconds} seconds. Nothing was "
        f"accepted. Send the same request again in {allowance.retry_in} seconds."
    )


def with_allowance(response: Response, allowance: Allowance) -> Response:
    """`response`, and what is left of the limit; where that refuses, when to come again."""
    limit, again = allowance.limit, () if allowance.admitted else (retry_after(allowance.retry_in),)
    policy = b'"default";q=%d;w=%d' % (limit.requests, limit.seconds)
    left = b'"default";r=%d;t=%d' % (allowance.remaining, allowance.more_in)
    return replace(response, headers=(*response.headers, *again, (b"ratelimit-policy", policy), (b"ratelimit", left)))
