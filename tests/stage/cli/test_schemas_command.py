"""`forwarder schemas`: writes every contract, and finds each that drifted, is missing, or is none."""

import json
from pathlib import Path

import pytest

from forwarder.assembly.contracts import contracts, pages
from forwarder.cli.output import Failed
from forwarder.cli.schemas import check, release, write

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_published_is_what_the_code_says() -> None:
    check(ROOT / "schemas", ROOT / "docs")


def test_what_is_written_is_whole(tmp_path: Path) -> None:
    schemas, docs = tmp_path / "schemas", tmp_path / "docs"
    write(schemas, docs)
    check(schemas, docs)
    assert {str(path.relative_to(schemas)) for path in schemas.rglob("*.*")} == set(contracts())
    assert {str(path.relative_to(docs)) for path in docs.rglob("*.*")} == set(pages())


@pytest.mark.parametrize("name", ["openapi.json", "asyncapi.yaml", "events/reservation.confirmed.v1.schema.json"])
def test_a_contract_that_drifted_is_found(tmp_path: Path, name: str) -> None:
    schemas, docs = tmp_path / "schemas", tmp_path / "docs"
    write(schemas, docs)
    (schemas / name).write_text("{}")
    with pytest.raises(Failed, match=name):
        check(schemas, docs)
    (schemas / name).unlink()
    with pytest.raises(Failed, match=name):
        check(schemas, docs)


def test_a_file_that_is_no_contract_is_found(tmp_path: Path) -> None:
    schemas, docs = tmp_path / "schemas", tmp_path / "docs"
    write(schemas, docs)
    (schemas / "events" / "reservation.gone.v1.schema.json").write_text("{}")
    with pytest.raises(Failed, match=r"reservation\.gone\.v1"):
        check(schemas, docs)


def _released_field(directory: Path, name: str) -> None:
    """As though the last release had one field more in its records."""
    path = directory / "released" / "openapi.json"
    document = json.loads(path.read_text())
    document["components"]["schemas"]["Reservation"]["properties"][name] = {"type": "string"}
    path.write_text(json.dumps(document))


def test_what_was_released_is_held_against_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schemas, docs = tmp_path / "schemas", tmp_path / "docs"
    write(schemas, docs)
    check(schemas, docs)
    assert "Nothing is released yet" in capsys.readouterr().out
    release(schemas)
    release(schemas)
    check(schemas, docs)
    assert "only added" in capsys.readouterr().out
    _released_field(schemas, "score")
    with pytest.raises(Failed, match="/score: is gone"):
        check(schemas, docs)
    with pytest.raises(Failed, match="/score: is gone"):
        release(schemas)


def test_a_release_elsewhere_may_be_named(tmp_path: Path) -> None:
    schemas, docs, other = tmp_path / "schemas", tmp_path / "docs", tmp_path / "other"
    write(schemas, docs)
    with pytest.raises(Failed, match="no contracts"):
        check(schemas, docs, other)
    write(other, docs)
    check(schemas, docs, other)
    (other / "events" / "reservation.gone.v1.schema.json").write_text("{}")
    with pytest.raises(Failed, match=r"reservation\.gone\.v1\.schema\.json: is gone"):
        check(schemas, docs, other)
