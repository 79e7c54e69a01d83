"""Request identifiers: unique, in order, derived the same for ever, and known to nobody else."""

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from forwarder.reservation.submission import RequestIds
from tests.support.cases import for_each

IDS = RequestIds(b"0123456789abcdef")
NOW = datetime(2027, 1, 1, tzinfo=UTC)


def test_what_an_identifier_looks_like() -> None:
    issued = IDS.issue("acc", NOW)
    assert issued.startswith("rsv_")
    assert len(issued) == 36
    assert set(issued[4:]) <= set("abcdefghijklmnopqrstuvwxyz234567")


def test_no_two_are_the_same() -> None:
    assert len({IDS.issue("acc", NOW) for _ in range(2_000)}) == 2_000


def test_later_ones_sort_after_earlier_ones() -> None:
    moments = [NOW + timedelta(milliseconds=step) for step in (0, 1, 999, 86_400_000, 10**11)]
    issued = [IDS.issue("acc", moment) for moment in moments]
    # Base32 of RFC 4648 sorts as its letters do not (digits stand for the highest values), so compare what they stand for.
    alphabet = str.maketrans("abcdefghijklmnopqrstuvwxyz234567", "0123456789abcdefghijklmnopqrstuv")
    assert sorted(issued, key=lambda text: text[4:].translate(alphabet)) == issued


def test_a_key_gives_the_same_identifier_for_ever() -> None:
    assert IDS.derive("acc", "order-42") == IDS.derive("acc", "order-42") == "rsv_axmdykc3m3pwnekjzrnzgvttn2lq36la"


@given(
    accounts=st.lists(st.text(max_size=6), min_size=2, max_size=2),
    keys=st.lists(st.text(max_size=6), min_size=2, max_size=2),
)
@settings(deadline=None, database=None)
def test_of_no_two_accounts_and_keys_the_same(accounts: list[str], keys: list[str]) -> None:
    pairs = {(account, key) for account in accounts for key in keys}
    assert len({IDS.derive(account, key) for account, key in pairs}) == len(pairs)


def test_issued_and_derived_are_vouched_for_to_their_account_alone() -> None:
    for request_id in (IDS.issue("acc", NOW), IDS.derive("acc", "order-42")):
        assert IDS.vouches("acc", request_id)
        assert not IDS.vouches("other", request_id)
        assert not IDS.vouches("", request_id)
        assert not RequestIds(b"another key, 16+").vouches("acc", request_id)


def test_other_processes_with_the_same_key_vouch_as_well() -> None:
    assert RequestIds(IDS.mac_key).vouches("acc", IDS.issue("acc", NOW))


@for_each(
    "text", ["", "rsv_", "x", "rsv_é", "rsv_" + "a" * 32, "rsv_" + "A" * 32, "rsv_1", "rsv_a=", "\0", "\u0131\u017f"]
)
def test_what_was_never_issued_is_not_vouched_for(text: str) -> None:
    assert not IDS.vouches("acc", text)


@given(st.text())
@settings(deadline=None, database=None)
def test_no_text_is_too_odd(text: str) -> None:
    assert not IDS.vouches("acc", text)
    assert not IDS.vouches("acc", "rsv_" + text)


def test_one_name_has_one_spelling() -> None:
    request_id = IDS.issue("acc", NOW)
    spellings = [request_id.upper(), request_id[4:], "rsv_" + request_id, f" {request_id}", f"{request_id}\n"]
    assert not any(IDS.vouches("acc", spelling) for spelling in [*spellings, "rsv_" + request_id[4:].upper()])


def test_every_changed_letter_is_noticed() -> None:
    request_id = IDS.issue("acc", NOW)
    changed = {
        request_id[:place] + ("b" if request_id[place] == "a" else "a") + request_id[place + 1 :]
        for place in range(4, 36)
    }
    assert not any(IDS.vouches("acc", other) for other in changed)


def test_the_key_does_not_show() -> None:
    assert "0123456789abcdef" not in repr(IDS)
