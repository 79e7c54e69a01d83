"""The generated pages of docs/: up to date, whole, and drift is found."""

from pathlib import Path

import pytest

from forwarder.settings import Environment
from tools.reference import signals
from tools.reference.__main__ import main, outdated, pages
from tools.reference.deployment import descriptions
from tools.reference.signals import MEANINGS, log_events_page


@pytest.mark.slow  # `make check` looks at this too
def test_the_pages_are_what_the_code_says() -> None:
    assert outdated() == []
    assert main(["check"]) == 0


def test_a_page_that_drifted_or_is_missing_is_found(tmp_path: Path) -> None:
    assert set(outdated(tmp_path)) == set(pages())
    for name, text in pages().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert outdated(tmp_path) == []
    (tmp_path / "docs/reference/metrics.md").write_text("# Metrics\n", encoding="utf-8")
    assert outdated(tmp_path) == ["docs/reference/metrics.md"]


def test_every_setting_is_described_with_its_default() -> None:
    page = pages()["docs/reference/settings.md"]
    for name in Environment.model_fields:
        assert descriptions()[name]
        assert f"| `FORWARDER_{name.upper()}` |" in page
    assert "| `FORWARDER_PUSH_TIMEOUT_SECONDS` | `30` | above 0, at most 300 |" in page
    assert "| `FORWARDER_WEBHOOK_PRIVATE_ADDRESSES` | `false` |" in page


def test_a_log_event_without_a_meaning_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "MEANINGS", {**MEANINGS, "no.such_event": "It was removed."})
    with pytest.raises(ValueError, match=r"no\.such_event"):
        log_events_page()


def test_commands_metrics_and_events_are_all_there() -> None:
    assert "### forwarder dead-letters replay" in pages()["docs/reference/commands.md"]
    assert (
        "| `forwarder_pushes_total` | counter | `kind`, `action`, `outcome` |" in pages()["docs/reference/metrics.md"]
    )
    assert "| `submission.accepted` | info | A submission is safe" in pages()["docs/reference/log-events.md"]


def test_each_key_of_a_mapping_has_its_default_and_a_meaning() -> None:
    page = pages()["docs/reference/mapping-format.md"]
    assert "| `requests` | whole number; else `1` |" in page
    assert "| `asList` | true or false; else `false` |" in page
    assert "|  |" not in page
