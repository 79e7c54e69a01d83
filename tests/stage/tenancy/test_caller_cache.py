"""Callers known again by their header fields: for as long as what was said of them is good, and not a moment longer."""

from dataclasses import dataclass, field, replace

import pytest

from forwarder.tenancy.access import Access, CachingDirectory, Caller, CallerCache, caller_valid_until
from forwarder.tenancy.port import Account, ApiKey, RateLimit, TenancyUnavailable
from forwarder.tenancy.sql.directory import CacheTimes, LookupCache
from tests.support.memory.clock import ManualClock
from tests.support.stages.http_stages import MemoryDirectory

ACCOUNT = Account("acc-1", "ws-1", "generic", "https://pms.example.com", "sealed")
KEY = ApiKey("key_1", "ws-1")
FIELDS = {b"authorization": b"Bearer good-token", b"workspaceid": b"ws-1", b"integrationaccountid": b"acc-1"}


@dataclass
class Directory:
    """Implements `Directory` and `CachingDirectory`: what is in it may change, and is looked up by the answers' ages."""

    clock: ManualClock
    keys: dict[str, ApiKey] = field(default_factory=lambda: {"good-token": KEY})
    accounts: dict[str, Account] = field(default_factory=lambda: {"acc-1": ACCOUNT})
    away: bool = False

    def __post_init__(self) -> None:
        self._keys = LookupCache(self._key, self.clock, CacheTimes(known=5))
        self._accounts = LookupCache(self._account, self.clock, CacheTimes(known=5))

    async def key(self, token: str) -> ApiKey | None:
        return await self._keys.get(token)

    async def account(self, account_id: str) -> Account | None:
        return await self._accounts.get(account_id)

    def valid_until(self, token: str, caller: Caller) -> float:
        return caller_valid_until(
            caller, self._keys.cached(token), self._accounts.cached(caller.account.id), self.clock
        )

    async def _key(self, token: str) -> ApiKey | None:
        if self.away:
            raise TenancyUnavailable("away")
        return self.keys.get(token)

    async def _account(self, account_id: str) -> Account | None:
        return self.accounts.get(account_id)


class Door:
    """Lets callers in as the ingress does."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.directory = Directory(self.clock)
        self.callers = CallerCache(self.directory)

    async def calls(self) -> Caller:
        headers = {name.decode(): each.decode() for name, each in FIELDS.items()}
        caller = await Access(self.directory, self.clock).caller(headers, "")
        assert isinstance(caller, Caller)
        self.callers.remember(FIELDS, caller)
        return caller

    def known(self, **changed: bytes | None) -> Caller | None:
        fields = {name: each for name, each in FIELDS.items() if name.decode() not in changed}
        fields |= {name.encode(): each for name, each in changed.items() if each is not None}
        return self.callers.find(fields, self.clock.monotonic())


@pytest.fixture
def door() -> Door:
    return Door()


async def test_a_caller_is_known_again_for_as_long_as_its_key_and_its_account_are(door: Door) -> None:
    assert door.known() is None
    await door.directory.key("good-token")
    await door.clock.advance(2)
    caller = await door.calls()  # its account was looked up now, its key two seconds ago
    await door.clock.advance(2.9)
    assert door.known() is caller
    await door.clock.advance(0.1)
    assert door.known() is None


@pytest.mark.parametrize("name", ["authorization", "workspaceid", "integrationaccountid"])
@pytest.mark.parametrize("value", [None, b"", b"bearer good-token", b"ws-2", b"acc-1 "])
async def test_other_fields_have_to_be_read(door: Door, name: str, value: bytes | None) -> None:
    await door.calls()
    assert door.known() is not None
    assert door.known(**{name: value}) is None


async def test_a_revoked_key_is_known_no_longer_than_the_directory_knows_it(door: Door) -> None:
    await door.calls()
    door.directory.keys.clear()
    await door.clock.advance(4.9)
    assert door.known() is not None
    assert await door.directory.key("good-token") == KEY
    await door.clock.advance(0.1)
    assert door.known() is None
    assert await door.directory.key("good-token") is None


async def test_what_is_good_for_longer_in_an_outage_is_asked_of_the_directory(door: Door) -> None:
    await door.calls()
    door.directory.away = True
    await door.clock.advance(5)
    assert door.known() is None
    await door.calls()
    assert door.known() is None


async def test_who_was_made_out_by_what_has_changed_meanwhile_is_not_remembered(door: Door) -> None:
    caller = await door.calls()
    assert door.directory.valid_until("good-token", caller) == door.clock.monotonic() + 5
    for other in (
        replace(caller, limit=RateLimit(1, 60)),
        replace(caller, key_id="key_2"),
        replace(caller, account=replace(ACCOUNT, paused=True)),
    ):
        door.callers.remember(FIELDS, other)
        assert door.known() is None
    door.callers.remember(FIELDS, caller)
    assert door.known() is caller


async def test_the_last_ones_are_remembered(door: Door) -> None:
    caller = await door.calls()
    for number in range(1_024):
        assert (door.known() is caller) == (number < 1_024)
        door.callers.remember({**FIELDS, b"workspaceid": b"%d" % number}, caller)
    assert door.known() is None
    assert door.known(workspaceid=b"0") is caller


async def test_where_the_directory_does_not_tell_nobody_is_remembered() -> None:
    directory = MemoryDirectory()
    assert not isinstance(directory, CachingDirectory)
    callers = CallerCache(directory)
    callers.remember(FIELDS, Caller("ws-1", ACCOUNT, "key_1"))
    assert callers.find(FIELDS, 0.0) is None
