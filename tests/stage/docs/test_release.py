"""What is published: one version everywhere, whole distributions, and links that lead somewhere from anywhere."""

import re
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from forwarder import __version__
from tools.release import ROOT, Failed, absolute_links, built, require_one_version, tried

HOME = "https://git.example.com/acme/forwarder"


def test_all_that_is_released_has_one_version() -> None:
    require_one_version()


def test_every_distribution_has_the_one_licence_as_a_file_of_its_own() -> None:
    """No link: a builder refuses what is outside of what it builds."""
    for copy in (ROOT / "clients" / "python" / "LICENSE", ROOT / "pms-kit" / "LICENSE"):
        assert not copy.is_symlink()
        assert copy.read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_links_of_a_readme_lead_to_the_released_sources() -> None:
    text = "[guide](../../docs/guides/client.md#bulks) ![flow](../../docs/assets/flow.svg) [RFC](https://rfc.example/1) [here](#x)"
    assert absolute_links(text, Path("clients/python"), HOME) == (
        f"[guide]({HOME}/blob/v{__version__}/docs/guides/client.md#bulks) "
        f"![flow]({HOME}/raw/v{__version__}/docs/assets/flow.svg) [RFC](https://rfc.example/1) [here](#x)"
    )
    with pytest.raises(Failed, match=r"links to docs/gone\.md"):
        absolute_links("[gone](docs/gone.md)", Path(), HOME)


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return built(HOME, tmp_path_factory.mktemp("dist"))


@pytest.mark.slow  # builds them; `make release-check` installs them too
def test_wheels_have_all_of_the_package_and_say_what_they_are(distributions: list[Path]) -> None:
    wheels = [path for path in distributions if path.suffix == ".whl"]
    assert len(distributions) == 6
    for wheel, package in zip(
        wheels,
        (ROOT / "forwarder", ROOT / "clients/python/reservation_forwarder_client", ROOT / "pms-kit/forwarder_pms_kit"),
        strict=True,
    ):
        with zipfile.ZipFile(wheel) as archive:
            names = set(archive.namelist())
            (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
            told = Parser().parsestr(archive.read(metadata).decode())
        sources = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        assert {path.relative_to(package.parent).as_posix() for path in sources} <= names
        assert any(name.endswith("/licenses/LICENSE") for name in names)
        assert told["Version"] == __version__
        assert "Typing :: Typed" in told.get_all("Classifier", [])
        assert f"Homepage, {HOME}" in told.get_all("Project-URL", [])
        links = re.findall(r"\]\(([^)\s]+)\)", str(told.get_payload()))
        assert links
        assert all(link.startswith("https://") for link in links)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_they_work_where_nothing_of_this_checkout_is(distributions: list[Path], tmp_path: Path) -> None:
    """Installed in new environments: the version, `forwarder up`, each command of its banner, the client, Ctrl-C."""
    server, client, kit = (path for path in distributions if path.suffix == ".whl")
    try:
        tried(server, client, kit, tmp_path)
    except Failed as why:
        if "No matching distribution" in str(why) or "Could not find a version" in str(why):
            pytest.skip(f"no registry: {why}")
        raise
