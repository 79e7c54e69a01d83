"""The Helm chart: `helm` renders it, Kubernetes' own schemas take it, and our processes take every pod's settings.

No cluster is needed. What renders and judges is built from Go modules where it is not installed.
"""

import json
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from forwarder.cli.program import program
from forwarder.settings import Environment
from forwarder.settings.reading import read_settings
from tests.containers.chart import CHART, ChartTools, Manifest, Refused, manifests_of
from tests.support.deployment.shipped.proxy_config import PROXY_CONFIG, ProxyConfig
from tools.servers.certificates import Authority
from tools.servers.ladder import Unavailable

ROOT = CHART.parents[2]
VALUES = sorted((CHART / "ci").glob("*.yaml"))
GUIDE = ROOT / "docs" / "guides" / "production.md"
STAGES = {"ingress", "worker", "query", "notifier"}
FILES = "/run/secrets/forwarder"
rendered_slowly = [pytest.mark.slow, pytest.mark.timeout(3000)]


def test_the_charts_user_is_the_images() -> None:
    user = re.search(r"^USER (\d+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)

    assert user is not None
    assert f"runAsUser: {user.group(1)}\n" in (CHART / "templates" / "_helpers.tpl").read_text()


def test_what_the_chart_carries_is_not_a_copy() -> None:
    carried = {path.name: path for path in (CHART / "files").iterdir() if path.name != "settings.txt"}

    assert all(stat.S_ISLNK(path.lstat().st_mode) for path in carried.values())
    assert {path.resolve() for path in carried.values()} == {
        ROOT / "deploy" / "monitoring" / "prometheus-rules.yml",
        ROOT / "deploy" / "monitoring" / "grafana-dashboard.json",
        ROOT / "deploy" / "compose" / "users",
        PROXY_CONFIG,
    }


@pytest.fixture(scope="module")
def tools() -> ChartTools:
    try:
        return ChartTools.on_this_machine()
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module", params=[*VALUES, GUIDE], ids=lambda path: path.stem.removesuffix("-values"))
def values(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = request.param
    if path == GUIDE:
        (block,) = re.findall(r"^```yaml\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
        path = tmp_path_factory.mktemp("guide") / "values.yaml"
        path.write_text(block)
    return path


@pytest.fixture(scope="module")
def rendered(tools: ChartTools, values: Path) -> str:
    return tools.template(values)


@pytest.fixture(scope="module")
def manifests(rendered: str) -> list[Manifest]:
    return manifests_of(rendered)


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Any]:
    """By the component that each is of."""
    return {
        each["metadata"]["labels"]["app.kubernetes.io/component"]: each for each in manifests if each["kind"] == kind
    }


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Component and pod of each Deployment, Job and Pod."""
    for kind in ("Deployment", "Job", "Pod"):
        for component, each in of_kind(manifests, kind).items():
            yield component, each["spec"] if kind == "Pod" else each["spec"]["template"]["spec"]


def environment(pod: Mapping[str, Any]) -> dict[str, str]:
    (container,) = pod["containers"]
    names = [each["name"] for each in container.get("env", ())]
    assert len(names) == len(set(names))
    assert all(isinstance(each["value"], str) for each in container.get("env", ()))
    return {each["name"]: each["value"] for each in container.get("env", ())}


def mounted(pod: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Path → Secret and key, of the files that the pod is given."""
    sources = [source for each in pod["volumes"] for source in each.get("projected", {}).get("sources", ())]
    return {
        item["path"]: (source["secret"]["name"], item["key"])
        for source in sources
        for item in source["secret"]["items"]
    }


class TestRendered:
    pytestmark = rendered_slowly

    def test_helm_finds_nothing_to_say_of_it(self, tools: ChartTools, values: Path) -> None:
        assert "0 chart(s) failed" in tools.lint(values)

    def test_kubernetes_would_take_it(self, tools: ChartTools, rendered: str) -> None:
        assert tools.faults(rendered) == ""
        assert "minReadySecond" in tools.faults(rendered.replace("minReadySeconds", "minReadySecond"))

    def test_every_pod_is_given_settings_that_its_process_takes(
        self, manifests: list[Manifest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By reading them as the process does, with every file that is mounted, and no other, in place."""
        for number, (component, pod) in enumerate(ours(manifests)):
            directory = tmp_path / str(number)
            told = environment(pod)
            write_files(directory, mounted(pod))
            with monkeypatch.context() as patch:
                for name, value in told.items():
                    here = value.replace(FILES, str(directory))
                    here = here.replace("/etc/ssl/certs/ca-certificates.crt", str(directory / "system-ca.pem"))
                    patch.setenv(name, here)
                settings = read_settings()
            assert settings.environment.lease_seconds == Environment().lease_seconds, component

    def test_every_pod_runs_a_command_that_there_is(self, manifests: list[Manifest]) -> None:
        for component, pod in ours(manifests):
            command = pod["containers"][0]["command"]
            if component != "operator":
                assert command[0] == "forwarder"
                assert parses(command[1:]), command

    def test_no_secret_is_in_it_and_each_is_with_who_needs_it_alone(
        self, manifests: list[Manifest], values: Path
    ) -> None:
        assert not any(each["kind"] == "Secret" for each in manifests)
        holders: dict[str, set[str]] = {}
        for component, pod in ours(manifests):
            told = environment(pod)
            for name in told:
                if re.search("PASSWORD|_KEY|SECRET|TOKEN(?!S|_URL)", name):
                    assert name.endswith("_FILE"), name
                    holders.setdefault(name, set()).add(component)
            user = told["FORWARDER_DATABASE_URL"].removeprefix("postgresql://").partition("@")[0]
            assert ":" not in user
            holders.setdefault(user, set()).add(component)
        given = yaml.safe_load(values.read_text())
        lent = {each for each in ("operator", "console") if (given.get(each) or {}).get("holdsSecretKey")}
        assert holders["FORWARDER_SECRET_KEY_FILE"] == {"worker", "migrate"} | lent
        assert holders["FORWARDER_NOTIFIER_KEY_FILE"] == {"notifier"}
        assert holders["forwarder"] == {"migrate", "topics"}
        for stage in STAGES:
            its = {stage, "housekeeping"} if stage == "worker" else {stage}
            assert [each for user, each in holders.items() if stage in re.split("[-_]", user)] == [its]

    def test_no_pod_may_do_anything_but_its_work(self, manifests: list[Manifest]) -> None:
        for component, pod in pods(manifests):
            assert pod["automountServiceAccountToken"] is False
            assert pod["enableServiceLinks"] is False
            assert pod["securityContext"]["runAsNonRoot"] is True
            (container,) = pod["containers"]
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, component
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"]["cpu"]

    def test_every_role_is_probed_and_stops_before_it_is_killed(self, manifests: list[Manifest]) -> None:
        roles = of_kind(manifests, "Deployment")
        assert set(roles) - {"operator", "proxy"} == STAGES | {"housekeeping", "console"}
        for component in STAGES | {"housekeeping", "console"}:
            pod = roles[component]["spec"]["template"]["spec"]
            (container,) = pod["containers"]
            told = environment(pod)
            for probe, path in (
                ("livenessProbe", "/healthz"),
                ("readinessProbe", "/readyz"),
                ("startupProbe", "/healthz"),
            ):
                assert path in json.dumps(container[probe])
                if "httpGet" in container[probe]:
                    scheme = "HTTPS" if "FORWARDER_TLS_KEY_FILE" in told else "HTTP"
                    assert container[probe]["httpGet"] == {"path": path, "port": "http", "scheme": scheme}
                    assert container["command"][3] == "0.0.0.0"
            port = container["ports"][0]["containerPort"]
            assert container["command"][-2:] == ["--port", str(port)]
            needed = float(told["FORWARDER_GRACE_SECONDS"]) + float(told.get("FORWARDER_LAME_DUCK_SECONDS", 0))
            assert needed < pod["terminationGracePeriodSeconds"] < 30

    def test_nothing_is_selected_that_is_not_there(self, manifests: list[Manifest]) -> None:
        """By Services, budgets, policies, and what scales."""
        labels = [
            each["spec"]["template"]["metadata"]["labels"] for each in manifests if "template" in each.get("spec", {})
        ]
        labels += [each["metadata"]["labels"] for each in manifests if each["kind"] == "Pod"]
        names = {each["metadata"]["name"] for each in of_kind(manifests, "Deployment").values()}
        for each in manifests:
            selector = selector_of(each)
            if selector is not None:
                chosen = [one for one in labels if selector.items() <= one.items()]
                assert len(chosen) == 1, each["metadata"]["name"]
            if each["kind"] in {"ScaledObject", "HorizontalPodAutoscaler"}:
                assert each["spec"]["scaleTargetRef"]["name"] in names
                (scaled,) = (
                    one
                    for one in manifests
                    if one["kind"] == "Deployment" and one["metadata"]["name"] == each["spec"]["scaleTargetRef"]["name"]
                )
                assert "replicas" not in scaled["spec"]

    def test_who_may_connect_where(self, manifests: list[Manifest]) -> None:
        policies = of_kind(manifests, "NetworkPolicy")
        assert set(policies) == {component for component, _ in pods(manifests)}
        for component, policy in policies.items():
            assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
            rules = policy["spec"]["egress"]
            outbound = [rule for rule in rules if "ipBlock" in json.dumps(rule) and "0.0.0.0/0" in json.dumps(rule)]
            assert component in {"worker", "notifier", "operator", "console"} or not outbound
        for job in ("migrate", "topics"):
            assert "ingress" not in policies[job]["spec"]
            assert policies[job]["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"

    def test_tables_then_users_then_topics_are_there_before_the_roles(self, manifests: list[Manifest]) -> None:
        jobs = of_kind(manifests, "Job")
        weights = {name: int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for name, each in jobs.items()}
        assert sorted(weights, key=lambda name: weights[name]) in (
            ["migrate", "topics"],
            ["migrate", "users", "topics"],
        )
        for each in jobs.values():
            assert each["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"


class TestSets:
    """What only some values make."""

    pytestmark = rendered_slowly

    def test_rules_and_dashboard_are_those_of_the_deployment(self, tools: ChartTools) -> None:
        manifests = manifests_of(tools.template(CHART / "ci" / "everything-values.yaml"))
        (rules,) = (each for each in manifests if each["kind"] == "PrometheusRule")
        shown = of_kind(manifests, "ConfigMap")["monitoring"]["data"]["reservation-forwarder.json"]

        monitoring = ROOT / "deploy" / "monitoring"
        assert rules["spec"] == yaml.safe_load((monitoring / "prometheus-rules.yml").read_text())
        assert json.loads(shown) == json.loads((monitoring / "grafana-dashboard.json").read_text())

    def test_roles_that_export_traces_may_reach_the_collector_and_nobody_else_may(self, tools: ChartTools) -> None:
        manifests = manifests_of(tools.template(CHART / "ci" / "everything-values.yaml"))
        policies = of_kind(manifests, "NetworkPolicy")
        asked = {component: environment(pod).get("OTEL_EXPORTER_OTLP_ENDPOINT") for component, pod in ours(manifests)}
        reach = {component for component in asked if "4318" in json.dumps(policies[component]["spec"]["egress"])}
        roles = {"ingress", "worker", "query", "notifier", "housekeeping", "console"}
        assert reach == {component for component, endpoint in asked.items() if endpoint} == roles

    def test_what_scales_asks_for_a_metric_that_there_is(self, tools: ChartTools) -> None:
        manifests = manifests_of(tools.template(CHART / "ci" / "everything-values.yaml"))
        scaled = of_kind(manifests, "ScaledObject")
        page = (ROOT / "docs" / "reference" / "metrics.md").read_text()

        assert set(scaled) == {"worker", "notifier"}
        for group, each in scaled.items():
            (trigger,) = each["spec"]["triggers"]
            query = trigger["metadata"]["query"]
            assert query == f'max(forwarder_lag_seconds{{group="{group}",namespace="bookings",cluster="eu"}})'
            assert "| `forwarder_lag_seconds` | gauge | `group` |" in page
            assert each["spec"]["minReplicaCount"] >= 1

    def test_the_proxys_upstreams_are_services(self, tools: ChartTools) -> None:
        manifests = manifests_of(tools.template(CHART / "ci" / "single-namespace-values.yaml"))
        conf = of_kind(manifests, "ConfigMap")["proxy"]["data"]["nginx.conf"]
        services = {
            f"{each['metadata']['name']}:{each['spec']['ports'][0]['port']}"
            for each in manifests
            if each["kind"] == "Service"
        }

        upstreams = set(re.findall(r"^\s+server ([\w.-]+:\d+);", conf, re.MULTILINE))
        assert len(upstreams) == 3
        assert upstreams <= services

    def test_the_route_goes_where_the_proxy_does(self, tools: ChartTools) -> None:
        manifests = manifests_of(tools.template(CHART / "ci" / "tls-values.yaml"))
        (route,) = (each for each in manifests if each["kind"] == "HTTPRoute")
        contract = json.loads((ROOT / "schemas" / "openapi.json").read_text())
        proxy = ProxyConfig.read()

        asked = [
            (method.upper(), path.replace("{", "").replace("}", ""))
            for path, each in contract["paths"].items()
            for method in each
        ]
        asked += [
            ("GET", "/problems/not_found"),
            ("HEAD", "/api/v1/vrs/reservations/rec-1"),
            ("GET", "/docs/guides/client"),
        ]
        asked += [("GET", f"/{name}") for name in ("", "docs", "openapi.json", "asyncapi.yaml", "pms-openapi.json")]
        assert len(asked) > 10
        for method, path in asked:
            assert routed(route, method, path) == proxy.upstream(method, path), (method, path)
        for path in ("/metrics", "/readyz", "/healthz", "/console", "/nowhere"):
            assert routed(route, "GET", path) is None

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"kafka": {"bootstrapServers": ""}}, "kafka.bootstrapServers is not set"),
            ({"kafka": {"bootstrapServers": "kafka"}}, "kafka/bootstrapServers"),
            ({"kafka": {"securityProtocol": "PLAINTEXT"}}, "in plaintext. Set SASL_SSL or SSL, or allowPlaintext"),
            ({"database": {"sslmode": "prefer"}}, "in plaintext. Set verify-full, or allowPlaintext"),
            ({"database": {"host": "forwarder:secret@db"}}, "database/host"),
            ({"database": {"password": "secret"}}, "additional properties 'password' not allowed"),
            ({"keys": {"secretKey": "a-secret-in-the-values"}}, "keys/secretKey"),
            (
                {"settings": {"FORWARDER_SECRET_KEY": "a-secret-in-the-values"}},
                "settings.FORWARDER_SECRET_KEY: no such setting",
            ),
            ({"settings": {"FORWARDER_MAX_WAIT_SECOND": 30}}, "settings.FORWARDER_MAX_WAIT_SECOND: no such setting"),
            ({"worker": {"settings": {"FORWARDER_PORT": 1}}}, "worker.settings.FORWARDER_PORT: no such setting"),
            ({"worker": {"replica": 3}}, "additional properties 'replica' not allowed"),
            ({"worker": {"replicas": 17}}, "worker: 17 pods for 16 partitions"),
            ({"worker": {"autoscaling": {"enabled": True}}}, "set keda.prometheus"),
            ({"proxy": {"enabled": True}}, "proxy.tls.secret is not set"),
            ({"httpRoute": {"enabled": True}}, "httpRoute.parentRefs is empty"),
        ],
        ids=lambda each: each if isinstance(each, str) else "",
    )
    def test_what_makes_no_deployment_is_refused_with_what_would(
        self, tools: ChartTools, tmp_path: Path, changed: Manifest, said: str
    ) -> None:
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(Refused, match=re.escape(said)) as refused:
            tools.template(CHART / "ci" / "minimal-values.yaml", tmp_path / "values.yaml")
        assert "a-secret-in-the-values" not in str(refused.value)


def ours(manifests: list[Manifest]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Pods of our image."""
    return ((component, pod) for component, pod in pods(manifests) if component not in {"proxy", "users"})


def write_files(directory: Path, files: Mapping[str, tuple[str, str]]) -> None:
    """What the Secrets would hold, each where the pod would have it."""
    authority = Authority(directory)
    shown = authority.issue("forwarder", "DNS:localhost")
    keys = {
        "secret-key": secrets.token_urlsafe(32),
        "earlier-secret-keys": secrets.token_urlsafe(32),
        "notifier-key": "0" * 64,
        "sealing-verify-key": "1" * 64,
    }
    for path in [*files, "system-ca.pem"]:
        if path.endswith("ca.pem"):
            content = authority.file.read_text()
        elif path.endswith("certificate.pem"):
            content = shown.certificate.read_text()
        elif path.endswith("-key.pem"):
            content = shown.key.read_text()
        else:
            content = keys.get(path, "a-password-of-the-tests")
        (directory / path).write_text(content)


def parses(arguments: list[str]) -> bool:
    """Whether there is such a command with such options: its help is shown, and nothing run, where they can be read."""
    return CliRunner().invoke(program(arguments), [*arguments, "--help"]).exit_code == 0


def selector_of(manifest: Manifest) -> Any:
    """What it selects pods by; None where it selects none."""
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Service":
            return spec["selector"]
        case "PodDisruptionBudget" | "Deployment":
            return spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            return spec["podSelector"]["matchLabels"]
    return None


def routed(route: Manifest, method: str, path: str) -> str | None:
    """The stage that the rule with the longest matching prefix names; of two alike the one that asks for the method."""
    found: list[tuple[int, bool, str]] = []
    for rule in route["spec"]["rules"]:
        (backend,) = rule["backendRefs"]
        for match in rule["matches"]:
            prefix = match["path"]["value"]
            below = path == prefix or (
                match["path"]["type"] == "PathPrefix" and path.startswith(prefix.rstrip("/") + "/")
            )
            if below and match.get("method", method) == method:
                found.append((len(prefix), "method" in match, backend["name"].rpartition("-")[2]))
    return max(found)[2] if found else None
