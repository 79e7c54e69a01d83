"""`python -m tools.contracts`: writes every contract and page, and finds each that drifted, is missing, or is not generated."""

import json
from pathlib import Path

import pytest

from tools.contracts.__main__ import Failed, check, release, write
from tools.contracts.files import generated_files

RELEASED = "schemas/released"


@pytest.mark.slow  # `make check` looks at this too
def test_what_is_published_is_what_the_code_says() -> None:
    check()


def test_what_is_written_is_whole(tmp_path: Path) -> None:
    write(tmp_path)
    check(tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")} == set(generated_files())


@pytest.mark.parametrize(
    "name",
    [
        "schemas/openapi.json",
        "forwarder/http/published/asyncapi.yaml",
        "schemas/events/reservation.confirmed.v1.schema.json",
        "forwarder/http/published/problems/not_found.html",
        "docs/reference/problems.md",
    ],
)
def test_a_file_that_drifted_is_found(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / name).write_text("{}")
    with pytest.raises(Failed, match=name):
        check(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(Failed, match=name):
        check(tmp_path)


def test_a_file_that_is_not_generated_is_found(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "schemas" / "events" / "reservation.gone.v1.schema.json").write_text("{}")
    with pytest.raises(Failed, match=r"reservation\.gone\.v1"):
        check(tmp_path)


def _released_field(root: Path, name: str) -> None:
    """As though the last release had one field more in its records."""
    path = root / RELEASED / "openapi.json"
    document = json.loads(path.read_text())
    document["components"]["schemas"]["Reservation"]["properties"][name] = {"type": "string"}
    path.write_text(json.dumps(document))


def test_what_was_released_is_held_against_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path)
    check(tmp_path)
    assert "Nothing is released yet" in capsys.readouterr().out
    release(tmp_path)
    release(tmp_path)
    check(tmp_path)
    assert "only added" in capsys.readouterr().out
    _released_field(tmp_path, "score")
    with pytest.raises(Failed, match="/score: is gone"):
        check(tmp_path)
    with pytest.raises(Failed, match="/score: is gone"):
        release(tmp_path)


def test_a_release_elsewhere_may_be_named(tmp_path: Path) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    write(root)
    with pytest.raises(Failed, match="no contracts"):
        check(root, other)
    write(tmp_path)
    other = tmp_path / "schemas"
    check(root, other)
    (other / "events" / "reservation.gone.v1.schema.json").write_text("{}")
    with pytest.raises(Failed, match=r"reservation\.gone\.v1\.schema\.json: is gone"):
        check(root, other)
