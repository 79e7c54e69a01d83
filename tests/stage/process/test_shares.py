"""Shares: what one party can take, and what it leaves to the others."""

import random

import pytest

from forwarder.process.shares import Shares


def fill(shares: Shares, party: str, amount: int = 1) -> int:
    """As much as `party` is given, taken by so much at a time."""
    taken = 0
    while shares.take(party, amount):
        taken += amount
    return taken


def test_one_party_alone_may_take_two_thirds() -> None:
    shares = Shares(3_000)
    assert fill(shares, "a") == shares.largest == shares.held("a") == 2_000


@pytest.mark.parametrize("parties", [1, 2, 5])
def test_a_party_that_comes_last_is_given_something_whatever_the_others_took(parties: int) -> None:
    shares = Shares(100_000)
    for number in range(parties):
        fill(shares, f"hostile-{number}")
    late = fill(shares, "late")
    # Each leaves a third of what it found, and gets no more until it is below its share.
    assert late == pytest.approx(100_000 / 3**parties * 2 / 3, abs=2)
    assert not shares.take("hostile-0")
    assert shares.free > 0
    for number in range(parties):
        shares.give_back(f"hostile-{number}", shares.held(f"hostile-{number}"))
    assert late + fill(shares, "late") == shares.largest


def test_two_parties_that_take_in_turns_get_two_fifths_each() -> None:
    shares = Shares(1_000)
    while shares.take("a") | shares.take("b"):
        pass
    assert (shares.held("a"), shares.held("b"), shares.free) == (400, 400, 200)


@pytest.mark.parametrize("total", [1, 2])
def test_small_totals_take_one(total: int) -> None:
    shares = Shares(total)
    assert (shares.take("a"), shares.take("a")) == (True, False)


def test_what_was_overdrawn_is_refused_to_nobody_later() -> None:
    shares = Shares(30)
    shares.overdraw("a", 40)
    assert not shares.take("b")
    shares.give_back("a", 40)
    assert (shares.free, shares.held("a"), shares.take("b", 20)) == (30, 0, True)


def test_what_is_held_and_what_is_free_are_the_total_whatever_happens() -> None:
    chance = random.Random(7)
    shares, held = Shares(500), dict.fromkeys("abcde", 0)
    for _ in range(5_000):
        party, amount = chance.choice("abcde"), chance.randint(1, 60)
        if chance.random() < 0.6:
            fits = shares.fits(party, amount)
            assert shares.take(party, amount) == fits
            held[party] += amount if fits else 0
        elif held[party]:
            amount = min(amount, held[party])
            shares.give_back(party, amount)
            held[party] -= amount
        assert {each: shares.held(each) for each in held} == held
        assert shares.free == 500 - sum(held.values()) >= 0
