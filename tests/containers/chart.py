"""The Helm chart rendered by `helm`, and judged by `kubeconform` by the schemas that Kubernetes and its extensions publish.

Programs that are not installed are built from their Go modules, once, into the user's cache; the schemas come from Go modules, too.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools.servers.kafka.jars import cache_directory
from tools.servers.ladder import Unavailable

CHART: Final = Path(__file__).parents[2] / "deploy" / "helm" / "reservation-forwarder"
KUBERNETES: Final = "1.34.2"
_PROGRAMS: Final = {
    "helm": "helm.sh/helm/v3/cmd/helm@v3.22.0",
    "kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0",
}
_KUBERNETES_MODULE: Final = f"k8s.io/kubernetes@v{KUBERNETES}"
_EXTENSIONS: Final = {
    "github.com/kedacore/keda/v2@v2.18.1": ["config/crd/bases/keda.sh_scaledobjects.yaml"],
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
    "sigs.k8s.io/gateway-api@v1.4.0": ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
}
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_BUILD_SECONDS: Final = 1500
Manifest = Mapping[str, Any]


class Refused(Exception):
    """helm does not render these values. The text is what it says."""


@dataclass(frozen=True, slots=True)
class ChartTools:
    """helm, kubeconform, and a directory of schemas."""

    helm: str
    kubeconform: str
    schemas: Path

    @classmethod
    def on_this_machine(cls) -> "ChartTools":
        """Raises `Unavailable`."""
        return cls(_program("helm"), _program("kubeconform"), _schemas())

    def lint(self, *values: Path) -> str:
        """What `helm lint --strict` says; raises `Refused` where anything is wrong."""
        return self._helm("lint", str(CHART), "--strict", *_given(values))

    def template(self, *values: Path, options: Sequence[str] = ()) -> str:
        """What would be applied. Raises `Refused`."""
        return self._helm("template", "shop", str(CHART), "--namespace", "bookings", *_given(values), *options)

    def faults(self, manifests: str) -> str:
        """What the schemas find wrong; empty where nothing is."""
        where = f"{self.schemas}/{{{{.Group}}}}_{{{{.ResourceAPIVersion}}}}_{{{{.ResourceKind}}}}.json"
        command = [self.kubeconform, "-strict", "-schema-location", where, "-"]
        done = subprocess.run(command, input=manifests, capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def _helm(self, *arguments: str) -> str:
        command = [self.helm, *arguments, "--kube-version", KUBERNETES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Refused(done.stdout + done.stderr)
        return done.stdout


def manifests_of(text: str) -> list[Manifest]:
    """The objects, in order."""
    return [each for each in yaml.safe_load_all(text) if each is not None]


def _given(values: Sequence[Path]) -> list[str]:
    return [argument for each in values for argument in ("--values", str(each))]


def _go() -> str:
    found = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if found is None:
        raise Unavailable("neither helm nor kubeconform are installed, nor is Go to build them")
    return found


def _program(name: str) -> str:
    """Raises `Unavailable`."""
    installed = shutil.which(name)
    if installed is not None:
        return installed
    module = _PROGRAMS[name]
    target = cache_directory() / f"{name}-{_digest(module)}"
    with _made_once(target) as directory:
        if directory is not None:
            _run([_go(), "install", module], {"GOBIN": str(directory)})
    return str(target / name)


def _schemas() -> Path:
    """A JSON schema for each kind, named by group, version and kind in small letters. Raises `Unavailable`."""
    target = cache_directory() / f"kubernetes-schemas-{_digest(Path(__file__).read_text())}"
    with _made_once(target) as directory:
        if directory is not None:
            swagger = json.loads((_module(_KUBERNETES_MODULE) / "api/openapi-spec/swagger.json").read_text())
            for name, schema in _own_kinds(swagger["definitions"]):
                (directory / name).write_text(json.dumps(schema))
            for module, files in _EXTENSIONS.items():
                for file in files:
                    for name, schema in _extension(yaml.safe_load((_module(module) / file).read_text())):
                        (directory / name).write_text(json.dumps(schema))
    return target


def _module(module: str) -> Path:
    said = _run([_go(), "mod", "download", "-json", module], {"GOFLAGS": "-mod=mod"})
    return Path(json.loads(said)["Dir"])


def _own_kinds(definitions: Mapping[str, Any]) -> Iterator[tuple[str, Manifest]]:
    """Of what Kubernetes has itself: each with all that it refers to."""
    strict = {name: _strict(definition) for name, definition in definitions.items()}
    strict[_QUANTITY] = {"type": ["number", "string"]}
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            needed: dict[str, Any] = {}
            _collect(f"#/definitions/{name}", strict, needed)
            yield (
                _file_name(kind["group"], kind["version"], kind["kind"]),
                {
                    "$schema": "http://json-schema.org/draft-07/schema#",
                    "$ref": f"#/definitions/{name}",
                    "definitions": needed,
                },
            )


def _collect(reference: str, known: Mapping[str, Any], into: dict[str, Any]) -> None:
    name = reference.removeprefix("#/definitions/")
    if name not in into:
        into[name] = known[name]
        for each in _references(known[name]):
            _collect(each, known, into)


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for each in schema.values():
            yield from _references(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from _references(each)


def _extension(definition: Mapping[str, Any]) -> Iterator[tuple[str, Manifest]]:
    spec = definition["spec"]
    for version in spec["versions"]:
        schema = _strict(version["schema"]["openAPIV3Schema"])
        yield _file_name(spec["group"], version["name"], spec["names"]["kind"]), schema


def _strict(schema: Any) -> Any:
    """As JSON schema, with nothing allowed that is not described: the API server would leave it out in silence."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    plain = {name: _strict(each) for name, each in schema.items() if name not in {"properties", "nullable"}}
    if "properties" in schema:
        plain["properties"] = {name: _strict(each) for name, each in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            plain.setdefault("additionalProperties", False)
    if schema.get("nullable") is True and isinstance(plain.get("type"), str):
        plain["type"] = [plain["type"], "null"]
    return plain


def _file_name(group: str, version: str, kind: str) -> str:
    # As kubeconform has it, which takes the version for the group where there is none.
    return f"{group or version}_{version}_{kind.lower()}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@contextmanager
def _made_once(target: Path) -> Iterator[Path | None]:
    """A directory to fill, which becomes `target`; None where that is there. One run makes it at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            yield None
            return
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        partial.rename(target)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **environment},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[-1]} cannot be had: {error}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[-1]} cannot be had: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
