"""`deploy/monitoring`: rules and dashboard ask for metrics and labels that there are; each alert has its section in the docs."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
RULES = MONITORING / "prometheus-rules.yml"
ALERTS = ROOT / "docs" / "operations" / "alerts.md"
ROW = re.compile(r"^\| `(\w+)` \| \w+ \| (.*?) \|", re.MULTILINE)
ASKED = re.compile(r"\b((?:forwarder|process)_\w+)(?:\{([^}]*)\})?")
OF_A_SERIES = re.compile(r"_(?:bucket|sum|count)$")


def _labels() -> dict[str, set[str]]:
    """Of each metric that there is."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in ROW.findall(page)}


def _alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def _expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in _alerts())
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_they_ask_for_what_there_is() -> None:
    known = _labels()
    for expression in _expressions():
        asked = [(name, labels) for name, labels in ASKED.findall(expression) if not name.startswith("process_")]
        for name, labels in asked:
            metric = name if name in known else OF_A_SERIES.sub("", name)
            assert metric in known, expression
            assert set(re.findall(r"(\w+)(?:=|!=|=~)\"", labels)) <= known[metric], expression
        for grouped in re.findall(r"by \(([^)]*)\)", expression):
            every = set().union(*(known.get(name, known.get(OF_A_SERIES.sub("", name), set())) for name, _ in asked))
            assert {label.strip() for label in grouped.split(",")} <= every | {"le", "job", "instance"}, expression


def test_each_alert_has_its_section_and_says_where() -> None:
    alerts = _alerts()
    sections = re.findall(r"^## (Forwarder\w+)$", ALERTS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sections == [alert["alert"] for alert in alerts]
    assert all(
        alert["annotations"]["runbook"] == f"docs/operations/alerts.md#{alert['alert'].lower()}" for alert in alerts
    )
    assert {alert["labels"]["severity"] for alert in alerts} == {"page", "ticket"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed: Debian has it in `prometheus`")
def test_the_rules_fire_when_they_should() -> None:
    for command in (["check", "rules", RULES.name], ["test", "rules", "prometheus-rules.test.yml"]):
        ran = subprocess.run(["promtool", *command], cwd=MONITORING, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
