"""The check for private names of libraries finds them in every form, and takes ours for ours."""

from tests.support.cases import for_each
from tools.private_names import uses_in

LIBRARY = (
    "import asyncio\nfrom logging import Handler, Logger\nfrom forwarder.topics.kafka.publisher import KafkaPublisher\n"
)


def names(source: str) -> list[str]:
    return [use.name for use in uses_in("tests/x.py", LIBRARY + source)]


@for_each(
    ("source", "name"),
    [
        ("asyncio._get_running_loop()", "_get_running_loop"),
        ("from asyncio import _leave_task", "_leave_task"),
        ("import xml.etree._private", "_private"),
        ("client._conns", "_conns"),
        ("client._conns = {}", "_conns"),
        ("self._conns", "_conns"),
        ("getattr(client, '_conns', None)", "_conns"),
        ("patch.setattr(client, '_conns', {})", "_conns"),
        ("patch.setattr('asyncio._get_running_loop', None)", "_get_running_loop"),
        ("model.__pydantic_validator__.validate_json(b'')", "__pydantic_validator__"),
        ("class Ours(Logger):\n    def _log(self): ...", "_log"),
        ("class Ours(Handler):\n    def emit(self): return self._closed", "_closed"),
    ],
)
def test_a_use_is_found(source: str, name: str) -> None:
    assert names(source) == [name]


@for_each(
    "source",
    [
        "def f(publisher: KafkaPublisher): return publisher._accumulator",
        "class Ours(Logger):\n    def __init__(self): self._ours = 1\n    def f(self): return self._ours",
        "class Ours:\n    def _log(self): ...",
        "row._mapping, entry._replace(a=1), type(entry).__name__",
        "_ours = 1",
        "from forwarder.cli import _ours",
        "import __future__",
    ],
)
def test_what_is_ours_or_documented_is_not(source: str) -> None:
    assert names(source) == []
