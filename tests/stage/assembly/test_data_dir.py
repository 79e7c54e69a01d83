"""What an embedded forwarder keeps is its user's alone."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from forwarder.assembly.backend import NotPrivate, alone_in, make_private, secret_in


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The most careless there is."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_directory_and_files_are_nobody_elses_whatever_the_umask(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    with alone_in(data_dir):
        secret_in(data_dir)
        (data_dir / "made.later").touch()
    assert mode(data_dir) == 0o700
    assert {file.name: mode(file) for file in data_dir.iterdir()} == {
        "secret.key": 0o600,
        "up.lock": 0o600,
        "made.later": 0o600,
    }


def test_what_was_open_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / "store.sqlite").touch(mode=0o666)
    make_private(tmp_path)
    assert (mode(tmp_path), mode(tmp_path / "store.sqlite")) == (0o700, 0o600)


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    """Whoever could write to the directory before may have left it there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept", encoding="ascii")
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "up.lock").symlink_to(elsewhere)
    with pytest.raises(NotPrivate, match=r"up\.lock is a symbolic link"), alone_in(data_dir):
        pass
    assert elsewhere.read_text(encoding="ascii") == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_somebody_elses_directory_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12345)
    with pytest.raises(NotPrivate, match="belongs to another user"):
        make_private(tmp_path)


def test_an_empty_secret_seals_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.key").touch()
    with pytest.raises(NotPrivate, match="is empty"):
        secret_in(tmp_path)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotPrivate, match="cannot be made: File exists"):
        make_private(tmp_path / "file")
