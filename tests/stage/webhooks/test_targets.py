"""Which addresses may be posted to: those of the public internet, however a private one is dressed up."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from forwarder.webhooks.addresses import MAX_LOOK_UPS, MAX_URL, AddressRule, ResolvedTargets, Resolver
from forwarder.webhooks.port import BadTarget
from tests.support.cases import for_each
from tests.support.memory.clock import settle

PUBLIC, TRYING, PRIVATE = AddressRule(), AddressRule(loopback=True), AddressRule(private=True)
INWARD = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "192.0.2.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1",
    "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "192.0.0.192", "192.0.0.1", "192.88.99.1", "168.63.129.16", "100.100.100.200", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "::ffff:168.63.129.16", "64:ff9b::a83f:8110", "2002:a83f:8110::1", "64:ff9b:1::808:808", "::8.8.8.8", "::ffff:0:8.8.8.8",
    "2001:0:53aa:64c:0:0:80ff:fffe", "2001:0:a00:1::f7f7:f7f7", "2001:10::1", "2001:20::1", "2001:2::1", "3fff::1", "3fff:fff::1",
    "5f00::1", "4000::1", "100::1", "100:0:0:1::1", "2a00:1450::5efe:10.0.0.1", "2a00:1450::200:5efe:10.0.0.1",
    "2a00:1450::200:5efe:192.0.0.192", "fd12::5efe:8.8.8.8",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::1",
]  # fmt: skip


@for_each("address", INWARD)
def test_what_only_the_inside_reaches_is_refused(address: str) -> None:
    assert not PUBLIC.allows("https", address)
    assert PRIVATE.allows("http", address)


@for_each(
    "address",
    [
        "93.184.215.14",
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2002:808:808::1",
        "2a00::5efe:8.8.8.8",
    ],
)
def test_public_addresses_are_allowed_by_https_alone(address: str) -> None:
    assert PUBLIC.allows("https", address)
    assert not PUBLIC.allows("http", address)
    assert not TRYING.allows("http", address)


def test_for_trying_this_machine_s_own_addresses_will_do() -> None:
    assert TRYING.allows("http", "127.0.0.1")
    assert TRYING.allows("http", "::1")
    assert not TRYING.allows("https", "10.0.0.1")


def targets(*addresses: str, rule: AddressRule = PUBLIC) -> ResolvedTargets:
    async def find(_host: str, _port: int) -> Sequence[str]:
        if not addresses:
            raise socket.gaierror("unknown")
        return addresses

    return ResolvedTargets(rule, find)


async def refused(url: str, *addresses: str, rule: AddressRule = PUBLIC) -> str:
    with pytest.raises(BadTarget) as refusal:
        await targets(*addresses, rule=rule).check(url)
    assert str(refusal.value).endswith(".")
    return refusal.value.code


@for_each(
    "url",
    [
        "", "hook", "//example.com/x", "ftp://example.com", "javascript:alert(1)", "https://", "https:///x", "https://:443/",
        "https://example.com:99999/", "https://example.com:0/", "https://example.com/#part", "https://exa mple.com/",
        "https://example.com/\n", "https://bücher.example/", "https://[::1/", "https://example.com\\@evil.example/",
    ],
)  # fmt: skip
async def test_what_is_no_address_is_refused(url: str) -> None:
    assert await refused(url, "8.8.8.8") == "not_a_url"


async def test_an_address_holds_no_password_and_is_not_endless() -> None:
    assert await refused("https://user:pass@example.com/", "8.8.8.8") == "credentials_in_url"
    assert await refused("https://user@example.com/", "8.8.8.8") == "credentials_in_url"
    assert await refused("https://example.com/" + "x" * MAX_URL, "8.8.8.8") == "too_long"


async def test_where_the_name_leads_to_decides() -> None:
    await targets("8.8.8.8").check("https://example.com:8443/hook?a=b")
    await targets("10.0.0.1", "8.8.8.8").check("https://example.com/")
    assert await refused("https://example.com/", "10.0.0.1", "::1") == "address_not_public"
    assert await refused("https://127.0.0.1/", "127.0.0.1") == "address_not_public"


async def test_a_name_that_nobody_knows_is_refused_in_the_same_words_as_one_that_leads_inside() -> None:
    """Else the answer would tell which names there are inside."""
    said = []
    for addresses in ((), ("10.0.0.1",)):
        with pytest.raises(BadTarget) as refusal:
            await targets(*addresses).check("https://db.internal/")
        said.append((refusal.value.code, str(refusal.value)))
    assert said[0] == said[1]
    await targets(rule=PRIVATE).check("https://not-yet.example/")


@for_each("host", ["10.0.0.8", "10.8", "167772168", "0xa.0.0.8", "012.0.0.8", "10.0.0.8.", "[fd00::1]"])
async def test_where_a_proxy_resolves_names_an_address_is_one_however_it_is_written(host: str) -> None:
    by_proxy = ResolvedTargets(PUBLIC, resolves=False)
    with pytest.raises(BadTarget, match="public internet"):
        await by_proxy.check(f"https://{host}/hook")
    await by_proxy.check("https://8.8.8.8/hook")
    await by_proxy.check("https://internal.example/hook")


async def test_http_is_for_this_machine_or_where_it_is_permitted() -> None:
    assert await refused("http://example.com/", "8.8.8.8") == "https_needed"
    assert await refused("http://example.com/", "8.8.8.8", rule=TRYING) == "https_needed"
    assert await refused("http://example.com/", "10.0.0.1", rule=TRYING) == "address_not_public"
    await targets("127.0.0.1", rule=TRYING).check("http://localhost:9/")
    await targets("10.0.0.1", rule=PRIVATE).check("http://inside.example/")


async def test_names_are_asked_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"two.example": ["192.0.2.7", "2001:db8::7", "192.0.2.7"]}

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if host == "bad..example":
            raise UnicodeError("label empty")
        if host not in known:
            raise socket.gaierror("unknown")
        return [(None, None, None, "", (address, port)) for address in known[host]]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolve = Resolver()
    assert await resolve("two.example", 443) == ["192.0.2.7", "2001:db8::7"]
    assert await resolve("10.0.0.1", 443) == ["10.0.0.1"]
    for unknown in ("nobody.example", "bad..example"):
        with pytest.raises(OSError):  # noqa: PT011 - each resolver has words of its own
            await resolve(unknown, 443)


async def test_names_that_hang_occupy_few_threads_and_hold_up_no_name_that_was_found_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent, asked = threading.Event(), Counter[str]()

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        asked[host] += 1
        if host != "good.example":
            silent.wait(30)
        return [(None, None, None, "", ("8.8.8.8", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolve = Resolver()
    assert await resolve("good.example", 443) == ["8.8.8.8"]
    before = threading.active_count()
    waiting = [asyncio.create_task(resolve(f"silent-{number % 64}.example", 443)) for number in range(256)]
    await settle()
    try:
        assert threading.active_count() - before <= MAX_LOOK_UPS
        assert await resolve("good.example", 443) == ["8.8.8.8"]
        assert not any(one.done() for one in waiting)
    finally:
        silent.set()
    assert await asyncio.gather(*waiting) == [["8.8.8.8"]] * 256
    assert asked.pop("good.example") == 2
    assert set(asked.values()) == {1}, "those who wait for one name share its look-up"


async def test_a_name_that_was_found_and_hangs_counts_as_unknown_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"a.example": True}

    def look_up(host: str, port: int, **_: object) -> list[tuple[object, ...]]:
        if not answers[host]:
            raise socket.gaierror("unknown")
        return [(None, None, None, "", ("8.8.8.8", port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolve = Resolver()
    for found in (True, False, True):
        answers["a.example"] = found
        if found:
            assert await resolve("a.example", 443) == ["8.8.8.8"]
        else:
            with pytest.raises(socket.gaierror):
                await resolve("a.example", 443)
