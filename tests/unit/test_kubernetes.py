"""The Kubernetes manifests, held against Kubernetes' own schemas and against the gateway they run."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from gateway.app.routes import ROUTES
from gateway.cli.main import application
from gateway.settings import Settings, load
from gateway.settings.loader import NOT_SETTINGS, PREFIX
from gateway.watching import Metrics

FOLDER = Path(__file__).parents[2] / "config" / "kubernetes"
FOLDERS = ("gateway", "migration")
KUBECTL = shutil.which("kubectl")
VERSIONS = ("1.29", kubernetes_validate.latest_version())


def resources(folder: str) -> list[str]:
    listed = yaml.safe_load((FOLDER / folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    return [f"{folder}/{name}" for name in listed]


RESOURCES = [name for folder in FOLDERS for name in resources(folder)]


def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


def container(name: str) -> dict[str, Any]:
    [only] = manifest(name)["spec"]["template"]["spec"]["containers"]
    return dict(only)


def variables(name: str) -> dict[str, Any]:
    return {entry["name"]: entry for entry in container(name)["env"]}


POD = manifest("gateway/deployment.yaml")["spec"]["template"]
WORKLOADS = ["gateway/deployment.yaml", "migration/job.yaml"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RESOURCES)
def test_a_manifest_is_valid(name: str, version: str) -> None:
    kubernetes_validate.validate(manifest(name), version, strict=True)


def test_a_manifest_with_a_misspelt_field_is_not_valid() -> None:
    wrong = manifest("gateway/deployment.yaml")
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 45
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_every_manifest_is_applied() -> None:
    there = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.yaml")}
    assert there == {*RESOURCES, *(f"{folder}/kustomization.yaml" for folder in FOLDERS), "gateway/gateway.yaml"}


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", FOLDERS)
def test_kustomize_builds_them(folder: str) -> None:
    built = subprocess.run(
        [str(KUBECTL), "kustomize", str(FOLDER / folder)], check=True, capture_output=True, text=True
    )
    documents = list(yaml.safe_load_all(built.stdout))
    for document in documents:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    images = re.findall(r"image: (.+)$", built.stdout, re.MULTILINE)
    assert images == ["registry.example.com/holeshot:0.1.0"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_container_runs_a_verb_with_variables_that_are_settings(name: str) -> None:
    assert set(container(name)["args"]) <= set(get_command(application()).commands)  # type: ignore[attr-defined]  # the application is a group of verbs
    ours = {variable.removeprefix(PREFIX) for variable in variables(name) if variable.startswith(PREFIX)}
    assert {variable.lower() for variable in ours - NOT_SETTINGS} <= set(Settings.model_fields)


def test_secrets_are_references() -> None:
    for name in WORKLOADS:
        written = {variable for variable, entry in variables(name).items() if "value" in entry}
        assert written <= {"HOLESHOT_CONFIG", "HOLESHOT_HOST", "HOLESHOT_PORT", "HOLESHOT_SPOOL_DIR"}
    assert not any(manifest(name)["kind"] == "Secret" for name in RESOURCES)


def test_the_gateway_starts_with_the_configuration_of_the_config_map() -> None:
    secret = {"HOLESHOT_DATABASE_URL": "postgresql://u@db/h", "HOLESHOT_REDIS_URL": "redis://r", "GROQ_API_KEY": "k"}
    written = {name: entry["value"] for name, entry in variables("gateway/deployment.yaml").items() if "value" in entry}
    settings = load(FOLDER / "gateway" / "gateway.yaml", written | secret | {"OWNER_KEY_SHA256": "a" * 64})

    assert settings.clients["owner"].role == "admin"
    [port] = container("gateway/deployment.yaml")["ports"]
    assert (settings.host, settings.port) == ("0.0.0.0", port["containerPort"])
    mounts = [mount["mountPath"] for mount in container("gateway/deployment.yaml")["volumeMounts"]]
    assert str(Path(settings.spool_dir).parent) in mounts
    assert str(Path(written["HOLESHOT_CONFIG"]).parent) in mounts


def test_probes_ask_for_routes_that_the_gateway_has() -> None:
    probes = {
        kind: container("gateway/deployment.yaml")[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")
    }
    paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
    assert paths == {"startup": "/health/live", "liveness": "/health/live", "readiness": "/health/ready"}
    assert set(paths.values()) <= {route.path for route in ROUTES}


def test_a_lame_duck_is_seen_to_be_one_before_its_port_closes() -> None:
    probe = container("gateway/deployment.yaml")["readinessProbe"]
    longest_s = probe["failureThreshold"] * probe["periodSeconds"] + probe["timeoutSeconds"]
    assert longest_s <= Settings().lame_duck_s


def test_calls_may_end_and_rows_are_written_before_a_pod_is_killed() -> None:
    settings = Settings()
    assert POD["spec"]["terminationGracePeriodSeconds"] >= settings.lame_duck_s + settings.shutdown_grace_s + 10
    page = (FOLDER.parents[1] / "docs" / "production.md").read_text(encoding="utf-8")
    assert f"terminationGracePeriodSeconds: {POD['spec']['terminationGracePeriodSeconds']}" in page


@pytest.mark.parametrize("name", WORKLOADS)
def test_nothing_runs_as_root_or_without_limits(name: str) -> None:
    assert manifest(name)["spec"]["template"]["spec"]["securityContext"]["runAsNonRoot"]
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container(name)["resources"]["limits"]


def test_services_and_budgets_select_the_gateway_s_pods_and_not_the_migration_s() -> None:
    labels = POD["metadata"]["labels"]
    assert manifest("gateway/service.yaml")["spec"]["selector"] == labels
    assert manifest("gateway/disruption.yaml")["spec"]["selector"]["matchLabels"] == labels
    assert manifest("migration/job.yaml")["spec"]["template"]["metadata"]["labels"] != labels


async def test_the_autoscaler_reads_a_gauge_that_the_gateway_has() -> None:
    autoscaler = manifest("gateway/autoscaler.yaml")["spec"]
    [metric] = autoscaler["metrics"]
    page, _ = await Metrics(dict).render()
    assert f"# TYPE {metric['pods']['metric']['name']} gauge" in page.decode()
    guide = (FOLDER.parents[1] / "docs" / "guides" / "kubernetes.md").read_text(encoding="utf-8")
    assert f"seriesQuery: '{metric['pods']['metric']['name']}{{" in guide
    assert autoscaler["scaleTargetRef"]["name"] == manifest("gateway/deployment.yaml")["metadata"]["name"]
    assert "replicas" not in manifest("gateway/deployment.yaml")["spec"]
