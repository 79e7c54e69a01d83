"""Kinds that other distributions bring: found, held against the built-in ones, and told of where they cannot be loaded."""

import importlib
from pathlib import Path

import pytest
import structlog

from forwarder.pms.kinds.generic import GenericAdapter
from forwarder.pms.port import BadOptions, UnknownKind
from forwarder.pms.registry import KINDS, NotLoaded, check_options, lacks, load_registry, registered
from tests.support.deployment.guide import write_distribution

ADAPTER = """
from forwarder.pms.kinds.generic import GenericAdapter


class Fax(GenericAdapter):
    pass


class Halved(GenericAdapter):
    find = None


NOTHING = 7
"""


class Shelf:
    """A directory that distributions are put into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "acme_fax.py").write_text(ADAPTER)
        (path / "acme_broken.py").write_text("raise RuntimeError('half an installation')\n")

    def put(self, distribution: str, version: str = "1.0", **kinds: str) -> None:
        write_distribution(self.path, distribution, version, {kind.replace("_", "-"): at for kind, at in kinds.items()})
        importlib.invalidate_caches()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.syspath_prepend(str(tmp_path))
    return Shelf(tmp_path)


def test_without_any_there_are_the_built_in_ones() -> None:
    registry = load_registry(KINDS)
    assert registry.kinds == KINDS
    assert not registry.origins
    assert not registry.not_loaded


def test_a_kind_of_another_distribution_is_there_with_where_it_comes_from(shelf: Shelf) -> None:
    shelf.put("acme-fax", "2.3", fax="acme_fax:Fax")
    registry = load_registry(KINDS)
    assert registry.kinds["fax"].__name__ == "Fax"  # type: ignore[attr-defined]
    assert registry.origins == {"fax": "acme-fax 2.3"}
    assert not registry.not_loaded


@pytest.mark.parametrize(
    ("kind", "at", "said"),
    [
        ("generic", "acme_fax:Fax", "a kind of that name is built in"),
        ("Fax", "acme_fax:Fax", "named by lower-case words"),
        ("fax", "acme_broken:Fax", "acme_broken:Fax raised RuntimeError: half an installation"),
        ("fax", "acme_missing:Fax", "raised ModuleNotFoundError"),
        ("fax", "acme_fax:Missing", "raised AttributeError"),
        ("fax", "acme_fax:NOTHING", "it cannot be called"),
        ("fax", "acme_fax:Halved", "it has no find"),
        ("fax", "builtins:dict", "its capabilities is no Capabilities"),
    ],
)
def test_one_that_cannot_be_loaded_is_told_of_and_stops_no_other(shelf: Shelf, kind: str, at: str, said: str) -> None:
    shelf.put("acme-other", other="acme_fax:Fax")
    shelf.put("acme-fax", "2.3", **{kind: at})
    registry = load_registry(KINDS)
    (fault,) = registry.not_loaded
    assert (fault.kind, fault.distribution) == (kind, "acme-fax 2.3")
    assert said in fault.error
    assert registry.kinds["other"].__name__ == "Fax"  # type: ignore[attr-defined]
    assert {name: registry.kinds[name] for name in KINDS} == dict(KINDS)


def test_of_two_that_bring_one_name_neither_counts(shelf: Shelf) -> None:
    shelf.put("acme-fax", fax="acme_fax:Fax")
    shelf.put("other-fax", fax="acme_fax:Fax")
    registry = load_registry(KINDS)
    assert "fax" not in registry.kinds
    assert [fault.distribution for fault in registry.not_loaded] == ["acme-fax 1.0", "other-fax 1.0"]
    assert all("more than one distribution" in fault.error for fault in registry.not_loaded)


def test_whoever_asks_for_one_that_is_not_loaded_hears_why(shelf: Shelf) -> None:
    shelf.put("acme-fax", fax="acme_broken:Fax")
    with pytest.raises(
        UnknownKind, match=r"There is no PMS kind 'fax'; .*'fax' of acme-fax 1.0 is not loaded: .*half an"
    ):
        check_options("fax", {}, load_registry(KINDS))


def test_a_processs_kinds_are_looked_for_once_and_faults_logged(shelf: Shelf) -> None:
    shelf.put("acme-fax", fax="acme_broken:Fax")
    registered.cache_clear()
    try:
        with structlog.testing.capture_logs() as events:
            assert registered() is registered()
    finally:
        registered.cache_clear()
    (event,) = [event for event in events if event["event"] == "adapter.not_loaded"]
    assert (event["kind"], event["distribution"], event["log_level"]) == ("fax", "acme-fax 1.0", "error")


def test_an_options_fault_never_quotes_what_was_given() -> None:
    with pytest.raises(BadOptions, match="noSuchOption") as refused:
        check_options("booking-sync", {"noSuchOption": "a-secret"})
    assert "a-secret" not in str(refused.value)


def test_every_built_in_kind_is_fit_to_be_one() -> None:
    assert not any(lacks(kind) for kind in KINDS.values())
    assert lacks(GenericAdapter) == ""
    assert str(NotLoaded("fax", "acme-fax 1.0", "why")) == "kind 'fax' of acme-fax 1.0 is not loaded: why"
