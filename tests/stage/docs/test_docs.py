"""The pages for readers stay true: every link leads somewhere, and every file that is named exists."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from forwarder.operate.deployment.conditions import conditions
from forwarder.settings import Environment
from tests.support.cases import for_each
from tools.reference.signals import MEANINGS

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FOLDERS = ("forwarder", "tests", "tools", "bench", "docs", "deploy", "schemas", "clients")
OTHER_VARIABLES = {  # of the demo, of the tests and their tools
    "FORWARDER_URL",
    "FORWARDER_TOKEN",
    "FORWARDER_WORKSPACE",
    "FORWARDER_TEST_KAFKA",
    "FORWARDER_TEST_DATABASE_URL",
    "FORWARDER_TEST_REQUIRE",
    "FORWARDER_TEST_CONTRACTS",
    "FORWARDER_TEST_RESTART_ENGINE",
    "FORWARDER_IMAGE",
}
_OF_KAFKA = {
    *(
        "min.insync.replicas",
        "advertised.listeners",
        "retention.ms",
        "segment.ms",
        "cleanup.policy",
        "compression.type",
    ),
    *("max.message.bytes", "message.timestamp.type", "unclean.leader.election.enable"),
}
_AUDITED = {"key.add", "account.change", "submission.settle"}
_OF_SPANS = {"error.type"}
_OF_THE_CHART = {"traces.endpoint", "traces.variables"}
NOT_EVENTS = (
    _OF_KAFKA
    | _AUDITED
    | _OF_SPANS
    | _OF_THE_CHART
    | {"reservations.requests", "reservations.results", "simulator.jsonl"}
)
MODULE = re.compile(r"(?:forwarder|tools|bench|tests)(?:\.[a-z_0-9]+)+")


def wrong(pages: Iterable[Path], found: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """What was found wrong on each page that has something wrong."""
    return {str(page.relative_to(ROOT)): names for page in pages if (names := sorted(found(page)))}


def test_every_relative_link_leads_somewhere() -> None:
    def dead(page: Path) -> Iterable[str]:
        return (link for link in LINK.findall(FENCE.sub("", _text(page))) if not _leads(page, link))

    assert wrong(PAGES, dead) == {}


def test_every_file_that_is_named_exists() -> None:
    assert wrong(PAGES, lambda page: (name for name in _named(_text(page)) if not _exists(name))) == {}


def test_every_setting_and_metric_that_is_named_exists() -> None:
    known = {f"FORWARDER_{name.upper()}" for name in Environment.model_fields} | OTHER_VARIABLES
    known |= set(re.findall(r"`(forwarder_\w+)`", _text(ROOT / "docs" / "reference" / "metrics.md")))
    known |= {"forwarder_pms_kit"}

    def unknown(page: Path) -> Iterable[str]:
        return set(re.findall(r"\bFORWARDER_[A-Z_]+[A-Z]\b|\bforwarder_[a-z_]+[a-z]\b", _text(page))) - known

    assert wrong(PAGES, unknown) == {}


def test_every_command_that_is_named_exists() -> None:
    names = set(re.findall(r"^#+ forwarder (\S+(?: \S+)?)$", _text(ROOT / "docs/reference/commands.md"), re.MULTILINE))
    groups = {name.split()[0] for name in names if " " in name}

    def unknown(text: str) -> list[str]:
        found = re.findall(r"\bforwarder ([a-z][a-z-]+)(?: ([a-z][a-z-]+))?", text)
        return [f"{noun} {verb}" for noun, verb in found if noun in groups and verb and f"{noun} {verb}" not in names]

    written = [page for page in PAGES if page.name != "CHANGELOG.md"]
    assert wrong(written, lambda page: unknown("\n".join(CODE.findall(page.read_text(encoding="utf-8"))))) == {}
    assert [name for each in conditions() for name in unknown(each.do)] == []


def test_every_log_event_that_operators_read_of_exists() -> None:
    def unknown(page: Path) -> Iterable[str]:
        named = {code for code in CODE.findall(_text(page)) if re.fullmatch(r"[a-z_]+\.[a-z_]+", code)}
        of_any_loop = {name for name in named if f"{{name}}.{name.partition('.')[2]}" in MEANINGS}
        files = {name for name in named if name.endswith((".yml", ".conf", ".md", ".py", ".pem"))}
        return named - of_any_loop - files - set(MEANINGS) - NOT_EVENTS

    assert wrong((ROOT / "docs" / "operations").glob("*.md"), unknown) == {}


@for_each(("page", "lines"), [("README.md", 80), ("ARCHITECTURE.md", 150), ("docs/operations/at-night.md", 40)])
def test_what_everybody_reads_first_is_short(page: str, lines: int) -> None:
    assert len(_text(ROOT / page).splitlines()) <= lines


def test_every_page_of_the_docs_is_in_the_sites_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in PAGES if path.is_relative_to(ROOT / "docs")]
    assert [page for page in pages if not page.startswith("decisions/0") and f": {page}\n" not in navigation] == []


def _leads(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in _anchors(target))


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", _text(page)), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings]
    return {heading.strip().replace(" ", "-") for heading in plain}


def _named(text: str) -> Iterator[str]:
    """Every file, folder and module that the page names as code."""
    for code in CODE.findall(FENCE.sub("", text)):
        for word in code.split():
            name = word.strip(",;:()").removesuffix("/")
            path = name.startswith(tuple(f"{folder}/" for folder in FOLDERS)) or name.endswith((".py", ".md", ".toml"))
            if path or MODULE.fullmatch(name):
                yield name


def _exists(name: str) -> bool:
    if "/" not in name and name.endswith(".py") and name.startswith("test_"):
        return any(_files(name))  # a table of tests names the folder once
    if MODULE.fullmatch(name) and "/" not in name:
        return _is_module(name)
    if any(mark in name for mark in "<{…"):
        return True
    return any(ROOT.glob(name)) or any((ROOT / "forwarder").glob(name))


def _is_module(name: str) -> bool:
    """Whether there is such a module, or a name within one."""
    parts = name.split(".")
    places = [ROOT.joinpath(*parts[:length]) for length in range(len(parts), 1, -1)]
    for depth, place in enumerate(places):
        if place.with_suffix(".py").exists() or (place / "__init__.py").exists():
            source = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
            return depth == 0 or parts[-depth] in source.read_text(encoding="utf-8")
    return False


@cache
def _files(name: str) -> tuple[Path, ...]:
    return tuple((ROOT / "tests").rglob(name))


@cache
def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")
