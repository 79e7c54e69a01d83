"""The collector of cycles, set for a server: seldom, and still in time."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from forwarder.process.loading import collect_rarely


class _Knot:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_refers_to_itself_is_freed_after_some_fifty_thousand_objects_more() -> None:
    collect_rarely()
    gc.collect()
    knot = weakref.ref(_Knot())
    held = [[number] for number in range(25_000)]
    assert knot() is not None
    held += [[number] for number in range(50_000)]
    assert knot() is None
