"""`forwarder schemas`: writes every contract, and finds each that drifted, is missing, or is none."""

from pathlib import Path

import pytest

from forwarder.assembly.contracts import contracts, pages
from forwarder.cli.output import Failed
from forwarder.cli.schemas import check, write

ROOT = Path(__file__).resolve().parents[2]


def test_what_is_published_is_what_the_code_says() -> None:
    check(ROOT / "schemas", ROOT / "docs")


def test_what_is_written_is_whole(tmp_path: Path) -> None:
    schemas, docs = tmp_path / "schemas", tmp_path / "docs"
    write(schemas, docs)
    check(schemas, docs)
    assert {str(path.relative_to(schemas)) for path in schemas.rglob("*.*")} == set(contracts())
    assert {path.name for path in docs.iterdir()} == set(pages())


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
