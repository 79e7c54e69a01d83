"""The buckets that workers share, on every backend: what one borrows no other gets."""

import asyncio

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from forwarder.process.shares import LoanRequest, SharedBucket
from forwarder.store.deployment import SqlLender

# Refills so slowly that a test sees nothing of it.
SLOW = SharedBucket("acc#own", rate=1e-6, burst=100.0)


def asks(wanted: int, *buckets: SharedBucket, returned: float = 0.0, least: int = 1) -> LoanRequest:
    return LoanRequest(buckets or (SLOW,), returned, wanted, least)


async def test_a_new_bucket_is_full_and_holds_its_burst(engine: AsyncEngine) -> None:
    lender = SqlLender(engine)
    (first,) = await lender.lend([asks(70)])
    (second,) = await lender.lend([asks(70)])
    (third,) = await lender.lend([asks(1)])
    assert (first.tokens, second.tokens, third.tokens) == (70, 30, 0)
    assert third.retry_in == pytest.approx(1e6, rel=0.01)


async def test_several_lenders_at_once_never_lend_more_than_there_is(engine: AsyncEngine) -> None:
    lenders = [SqlLender(engine) for _ in range(4)]
    loans = await asyncio.gather(*(lender.lend([asks(3), asks(2)]) for lender in lenders for _ in range(10)))
    assert sum(loan.tokens for pair in loans for loan in pair) == 100


async def test_what_is_returned_can_be_lent_again_and_a_debt_is_paid_first(engine: AsyncEngine) -> None:
    lender = SqlLender(engine)
    await lender.lend([asks(100)])
    (loan,) = await lender.lend([asks(100, returned=12.0)])
    assert loan.tokens == 12
    (loan,) = await lender.lend([asks(100, returned=-5.0)])
    assert loan.tokens == 0
    (loan,) = await lender.lend([asks(100, returned=9.0)])
    assert loan.tokens == 4


async def test_the_emptiest_of_several_buckets_decides_and_all_are_debited(engine: AsyncEngine) -> None:
    lender, address = SqlLender(engine), SharedBucket("kind@host#10", rate=1e-6, burst=8.0)
    (one, other) = await lender.lend([asks(20, SLOW, address), asks(20, SLOW._replace(name="other"), address)])
    assert (one.tokens, other.tokens) == (8, 0)
    (rest,) = await lender.lend([asks(100)])
    assert rest.tokens == 92


async def test_fewer_than_a_push_takes_are_not_lent(engine: AsyncEngine) -> None:
    lender, bucket = SqlLender(engine), SharedBucket("acc#own", rate=0.01, burst=3.0)
    (first,) = await lender.lend([asks(2, bucket, least=2)])
    (second,) = await lender.lend([asks(2, bucket, least=2)])
    assert (first.tokens, second.tokens) == (2, 0)
    assert 0.0 < second.retry_in <= 100.0


async def test_a_bucket_refills(engine: AsyncEngine) -> None:
    lender, bucket = SqlLender(engine), SharedBucket("acc#own", rate=1000.0, burst=10.0)
    await lender.lend([asks(10, bucket)])
    lent = 0
    while not lent:
        (loan,) = await lender.lend([asks(10, bucket)])
        lent = loan.tokens
    assert lent <= 10
