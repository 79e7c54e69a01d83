"""`python -m tools.release build --home URL` makes the distributions as they are published, in dist/; `check` makes them and tries
them as a user does, in new environments outside of this checkout. docs/releasing.md says when.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import yaml

from forwarder import __version__

ROOT: Final = Path(__file__).resolve().parents[1]
DISTRIBUTIONS: Final = (Path(), Path("clients/python"), Path("pms-kit"))
_CHART: Final = Path("deploy/helm/reservation-forwarder/Chart.yaml")
_TYPESCRIPT: Final = Path("clients/typescript/package.json")
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
_BUILD: Final = "import sys; from flit_core import buildapi; getattr(buildapi, sys.argv[1])(sys.argv[2])"
_START_SECONDS: Final = 60
_CLIENT: Final = """
import os
from reservation_forwarder_client import ForwarderClient

ASKED = {"propertyId": 1001, "roomId": "A3", "arrivalDate": "2031-03-01", "departureDate": "2031-03-05", "numberOfGuests": 2,
         "guest": {"firstName": "Maria", "lastName": "Gonzalez", "email": "maria@example.com"}}
url, token, workspace = (os.environ[f"FORWARDER_{name}"] for name in ("URL", "TOKEN", "WORKSPACE"))
with ForwarderClient(url, token=token, workspace=workspace, account="demo-generic") as client:
    print(client.submit_general(ASKED, idempotency_key="order-42", wait=30).status)
"""


class Failed(Exception):
    """What is not ready, or does not work, and what to do."""


def build(
    home: Annotated[
        str, typer.Option(help="Where the sources are published, such as https://github.com/acme/forwarder.")
    ],
    out: Annotated[Path, typer.Option(help="Where the files go.")] = ROOT / "dist",
) -> None:
    """Make a wheel and a source distribution of the forwarder, of its Python client and of the kit for authors of adapters."""
    for path in built(home, out):
        print(path)


def check() -> None:
    """Make the distributions, install them in new environments, and try them. Wants a registry, for what they depend on."""
    require_one_version()
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "dist"
        server, client, kit = [
            each for each in built("https://git.example.com/forwarder", out) if each.suffix == ".whl"
        ]
        tried(server, client, kit, Path(directory) / "away")
        uv = shutil.which("uv")
        if uv is None:
            print("uv is not installed: `uv tool run` was not tried.")
        else:
            said = _run([uv, "tool", "run", "--from", str(server), "forwarder", "--version"], Path(directory))
            _require("uv tool run", said.strip() == f"forwarder {__version__}", said)


def require_one_version() -> None:
    """Raise `Failed` where forwarder, clients and chart have not the same."""
    chart = yaml.safe_load((ROOT / _CHART).read_text(encoding="utf-8"))
    found = {f"{_CHART}, version": chart["version"], f"{_CHART}, appVersion": chart["appVersion"]}
    found[str(_TYPESCRIPT)] = json.loads((ROOT / _TYPESCRIPT).read_text(encoding="utf-8"))["version"]
    for distribution in DISTRIBUTIONS:
        project = _project(distribution)
        if "version" in project["project"]:
            found[str(distribution / "pyproject.toml")] = project["project"]["version"]
        package = distribution / project["tool"]["flit"]["module"]["name"] / "__init__.py"
        written = re.search(r'^__version__ = "(.*)"$', (ROOT / package).read_text(encoding="utf-8"), re.MULTILINE)
        found[str(package)] = written and written.group(1)
    if len(set(found.values())) != 1:
        raise Failed("Versions differ: " + ", ".join(f"{where} has {version}" for where, version in found.items()))


def built(home: str, out: Path) -> list[Path]:
    """The files, each wheel made from its source distribution; the forwarder's, then the client's, then the kit's."""
    out.mkdir(parents=True, exist_ok=True)
    made = []
    for distribution in DISTRIBUTIONS:
        with tempfile.TemporaryDirectory() as directory:
            staged = Path(directory) / "staged"
            stage(distribution, staged, home.rstrip("/"))
            source = _hook("build_sdist", staged, out)
            with tarfile.open(source) as archive:
                # Python 3.11 has it from its fourth patch on.
                archive.extraction_filter = getattr(tarfile, "data_filter", None)
                archive.extractall(directory)  # noqa: S202 - it was made above
            (unpacked,) = (path.parent for path in Path(directory).glob("*/PKG-INFO"))
            made += [source, _hook("build_wheel", unpacked, out)]
    return made


def stage(distribution: Path, into: Path, home: str) -> None:
    """The sources of it as they are published: the addresses are known, and links of its README lead there."""
    own = ROOT / distribution
    module = _project(distribution)["tool"]["flit"]["module"]["name"]
    leave = shutil.ignore_patterns("__pycache__", "*.py[co]")
    shutil.copytree(own / module, into / module, ignore=leave)
    shutil.copy(own / "LICENSE", into)
    readme = (own / "README.md").read_text(encoding="utf-8")
    (into / "README.md").write_text(absolute_links(readme, distribution, home), encoding="utf-8")
    addresses = {
        "Homepage": home,
        "Documentation": f"{home}/blob/v{__version__}/docs/index.md",
        "Changelog": f"{home}/blob/v{__version__}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
    lines = [f'{name} = "{address}"' for name, address in addresses.items()]
    text = (own / "pyproject.toml").read_text(encoding="utf-8")
    (into / "pyproject.toml").write_text("\n".join([text, "[project.urls]", *lines, ""]), encoding="utf-8")


def _project(distribution: Path) -> dict[str, Any]:
    return tomllib.loads((ROOT / distribution / "pyproject.toml").read_text(encoding="utf-8"))


def absolute_links(text: str, where: Path, home: str) -> str:
    """`text` of a page in the folder `where` of the repository, for readers elsewhere. Raises `Failed` for a link to nothing."""

    def absolute(found: re.Match[str]) -> str:
        image, words, link = found.groups()
        path, _, anchor = link.partition("#")
        target = (ROOT / where / path).resolve()
        if not target.exists():
            raise Failed(f"{where / 'README.md'} links to {link}, which is not there")
        below = target.relative_to(ROOT).as_posix()
        address = f"{home}/{'raw' if image else 'blob'}/v{__version__}/{below}"
        return f"{image}[{words}]({address}{'#' + anchor if anchor else ''})"

    return _LINK.sub(absolute, text)


def tried(server: Path, client: Path, kit: Path, away: Path) -> None:
    """Install them in `away`, start the forwarder there, type what its banner says, book by the client; then check an adapter,
    without and with the kit. Raises `Failed`."""
    bin_of = {path: _environment(path, away / path.name.partition("-")[0]) for path in (server, client)}
    forwarder = bin_of[server] / "forwarder"
    work = away / "work"
    work.mkdir()
    said = _run([forwarder, "--version"], work)
    _require("forwarder --version", said.strip() == f"forwarder {__version__}", said)
    with _up(bin_of[server], work) as banner:
        for line in _commands(banner):
            said = _run(["bash", "-c", line], work, {"PATH": f"{bin_of[server]}:{os.environ['PATH']}"})
            _require(line.splitlines()[0], "Traceback" not in said and bool(said.strip()), said)
        settings = dict(
            line.removeprefix("export ").split("=", 1)
            for line in (work / ".forwarder/demo.env").read_text().splitlines()
        )
        program = work / "book.py"
        program.write_text(_CLIENT, encoding="utf-8")
        said = _run([bin_of[client] / "python", program], work, settings)
        _require("the client's booking", "CONFIRMED" in said, said)
    asked: list[str | Path] = [forwarder, "adapters", "check", "hostaway", "--check", "makes-reservations"]
    refused = subprocess.run(asked, cwd=work, env=_clean(), capture_output=True, text=True, check=False)
    _require("what a check says without the kit", "pip install forwarder-pms-kit" in refused.stderr, refused.stderr)
    _run([bin_of[server] / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet", kit], work)
    said = _run(asked, work)
    _require("a check with the kit", "passed" in said, said)


def _commands(banner: str) -> list[str]:
    """What the banner says to type: the curl, and the commands that are indented below "Then:"."""
    curl = re.search(r"^curl .*?}'$", banner, re.MULTILINE | re.DOTALL)
    later = re.findall(r"^  ((?:forwarder|make|\. ).*)$", banner, re.MULTILINE)
    if curl is None or not later:
        raise Failed(f"The banner says nothing to type:\n{banner}")
    return [curl.group(), *(f"{line} && echo done" for line in later)]


@contextmanager
def _up(programs: Path, work: Path) -> Iterator[str]:
    """`forwarder up`, as its user starts it; what it says once it runs."""
    log = work.parent / "up.log"
    environment = {**_clean(), "PATH": f"{programs}:{os.environ['PATH']}"}
    with log.open("wb") as sink:
        running = subprocess.Popen(
            [programs / "forwarder", "up", "--port", "0"], cwd=work, env=environment, stdout=sink, stderr=sink
        )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while "/asyncapi.yaml" not in (banner := log.read_text(encoding="utf-8")):
            if running.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"forwarder up did not start:\n{banner}")
            time.sleep(0.05)
        yield banner
        running.send_signal(signal.SIGINT)
        _require("Ctrl-C", running.wait(_START_SECONDS) == 0, log.read_text(encoding="utf-8"))
    finally:
        running.kill()
        running.wait()


def _environment(wheel: Path, directory: Path) -> Path:
    """A new environment with the wheel and what it depends on; where its programs are."""
    _run([sys.executable, "-m", "venv", directory], directory.parent.parent)
    python = directory / "bin" / "python"
    _run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", wheel], directory)
    return directory / "bin"


def _hook(name: str, sources: Path, out: Path) -> Path:
    before = set(out.iterdir())
    _run([sys.executable, "-c", _BUILD, name, out], sources)
    found = set(out.iterdir()) - before
    if not found:
        raise Failed(f"{out} holds what was to be built already: remove it first.")
    return found.pop()


def _clean() -> dict[str, str]:
    """The environment without what would lead back to this checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("FORWARDER_", "PYTHON"))}


def _run(command: Sequence[str | Path], where: Path, more: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=where, env={**_clean(), **(more or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise Failed(f"{command[0]} {command[-1]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _require(what: str, holds: bool, said: str) -> None:  # noqa: FBT001  # a condition and its words
    if not holds:
        raise Failed(f"{what}:\n{said}")
    print(f"works: {what}")


if __name__ == "__main__":
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=__doc__)
    app.command()(build)
    app.command()(check)
    try:
        app()
    except Failed as failure:
        sys.exit(f"release: {failure}")
