"""Observations of hot paths: none is lost, and a histogram shows them soon."""

import asyncio

from prometheus_client import CollectorRegistry, Counter, Histogram

from forwarder.observability.metrics import DeferredMetrics


def _histogram() -> tuple[CollectorRegistry, Histogram]:
    registry = CollectorRegistry()
    return registry, Histogram("seconds", "For this test.", buckets=(1.0,), registry=registry)


async def test_what_was_noted_shows_once_it_is_handed_over() -> None:
    registry, histogram = _histogram()
    deferred = DeferredMetrics()
    deferred.observe(histogram, 0.5)
    deferred.observe(histogram, 2.0)
    assert registry.get_sample_value("seconds_count") == 0
    deferred.flush()
    deferred.flush()
    assert registry.get_sample_value("seconds_count") == 2
    assert registry.get_sample_value("seconds_sum") == 2.5
    assert registry.get_sample_value("seconds_bucket", {"le": "1.0"}) == 1


async def test_what_was_counted_shows_once_it_is_handed_over() -> None:
    registry = CollectorRegistry()
    counter = Counter("things", "For this test.", ["kind"], registry=registry)
    deferred = DeferredMetrics()
    for kind in ("one", "other", "one"):
        deferred.count(counter.labels(kind))
    assert registry.get_sample_value("things_total", {"kind": "one"}) == 0
    deferred.flush()
    deferred.flush()
    assert registry.get_sample_value("things_total", {"kind": "one"}) == 2
    assert registry.get_sample_value("things_total", {"kind": "other"}) == 1


def test_it_is_handed_over_by_the_loop_in_which_it_was_noted_and_by_the_next_one() -> None:
    registry, histogram = _histogram()
    deferred = DeferredMetrics()

    async def note_and_wait() -> None:
        deferred.observe(histogram, 0.5)
        before = registry.get_sample_value("seconds_count")
        async with asyncio.timeout(60):
            while registry.get_sample_value("seconds_count") == before:
                await asyncio.sleep(0)

    async def note() -> None:
        deferred.observe(histogram, 0.5)

    asyncio.run(note())  # its loop ends before it could hand over
    asyncio.run(note_and_wait())
    assert registry.get_sample_value("seconds_count") == 2
    asyncio.run(note_and_wait())
    assert registry.get_sample_value("seconds_count") == 3
