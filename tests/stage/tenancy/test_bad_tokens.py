"""Bad tokens are counted by the address that they come from, in bounded memory."""

import structlog

from forwarder.tenancy.access import BadTokens
from forwarder.tenancy.port import may_be_ours, new_token
from tests.support.memory.clock import ManualClock


async def test_an_address_may_send_its_share_and_as_many_again_each_minute() -> None:
    clock = ManualClock()
    tokens = BadTokens(clock, 6)
    assert [tokens.count("192.0.2.1") for _ in range(8)] == [None] * 6 + [10, 10]
    await clock.advance(9)
    assert tokens.count("192.0.2.1") == 1
    await clock.advance(1)
    assert [tokens.count("192.0.2.1") for _ in range(2)] == [None, 10]
    await clock.advance(60)
    assert [tokens.count("192.0.2.1") for _ in range(7)] == [None] * 6 + [10]


def test_of_ipv6_a_whole_network_counts_as_one_and_what_is_no_address_as_well() -> None:
    for one, same, other in (
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"),
        ("", "made up", "192.0.2.3"),
    ):
        tokens = BadTokens(ManualClock(), 1)
        assert tokens.count(one) is None
        assert tokens.count(same) == 60
        assert tokens.count(other) is None


def test_no_more_addresses_are_remembered_than_there_is_room_for() -> None:
    tokens = BadTokens(ManualClock(), 1, max_addresses=2)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        assert tokens.count(address) is None
    assert tokens.count("192.0.2.3") == tokens.count("192.0.2.2") == 60
    assert tokens.count("192.0.2.1") is None, "it was forgotten first"


async def test_a_flood_from_everywhere_is_a_line_a_minute() -> None:
    clock = ManualClock()
    tokens = BadTokens(clock, 1)
    with structlog.testing.capture_logs() as logged:
        for _ in range(2):
            for host in range(100):
                tokens.count(f"192.0.2.{host}")
        await clock.advance(59)
        tokens.count("192.0.2.1")
        await clock.advance(1)
        tokens.count("192.0.2.1")
        tokens.count("192.0.2.1")
    assert [line["since_last"] for line in logged] == [1, 101]


def test_a_token_of_this_deployment_is_told_from_any_other() -> None:
    token = new_token(b"ours", test=True)
    assert may_be_ours(b"ours", token)
    for other in (token[:-1], token + "x", token.replace("test", "live"), new_token(b"theirs"), "", "x", "ä" * 60):
        assert not may_be_ours(b"ours", other)
