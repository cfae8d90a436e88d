"""The recipes for Vault, AWS and Google: each writes the files that the configuration reads, and none else."""

import copy
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.settings import References, load

CONFIG = Path(__file__).parents[2] / "config"
FOLDER = CONFIG / "secrets"
MOUNTED = "/run/holeshot/secrets"
KEYS = {"groq", "openai"}
PATCHES = ("pod.yaml", "pod-csi.yaml")


def documents(name: str) -> dict[str, dict[str, Any]]:
    """Return the documents of a file by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8"))}


def patched(name: str) -> dict[str, Any]:
    """Return the Deployment with a patch, as a strategic merge makes it of these lists, which merge by name."""
    text = (CONFIG / "kubernetes" / "gateway" / "deployment.yaml").read_text(encoding="utf-8")
    deployment: dict[str, Any] = copy.deepcopy(yaml.safe_load(text))
    pod, patch = deployment["spec"]["template"]["spec"], yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    added = patch["spec"]["template"]["spec"]
    [container], [new] = pod["containers"], added.pop("containers")
    assert container["name"] == new.pop("name")
    container["volumeMounts"] += new.pop("volumeMounts")
    assert not new
    pod["volumes"] += added.pop("volumes")
    pod.update(added)
    return deployment


def test_the_configuration_reads_each_key_from_its_file(tmp_path: Path) -> None:
    text = (FOLDER / "gateway.yaml").read_text(encoding="utf-8")
    assert set(re.findall(rf"file:{MOUNTED}/(\w+)", text)) == KEYS
    for key in KEYS:
        (tmp_path / key).write_text(f"the key of {key}\n", encoding="utf-8")
    path, references = tmp_path / "gateway.yaml", References()
    path.write_text(text.replace(MOUNTED, str(tmp_path)), encoding="utf-8")
    settings = load(path, {}, references=references)
    read = {name: [key.get_secret_value() for key in each.keys] for name, each in settings.providers.items()}
    assert read == {key: [f"the key of {key}"] for key in KEYS}
    assert set(references.files) == {tmp_path / key for key in KEYS}


def test_vaults_agent_writes_each_file_for_its_owner_alone() -> None:
    text = (FOLDER / "vault-agent.hcl").read_text(encoding="utf-8")
    assert text.count("{") == text.count("}")
    templates = re.findall(r"^template \{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    written = {}
    for template in templates:
        fields = dict(re.findall(r"^  (\w+)\s+= (.+)$", template, re.MULTILINE))
        assert fields["perms"] == '"0400"'
        assert fields["error_on_missing_key"] == "true"  # else a file would hold "<no value>"
        [key] = re.findall(r"\.Data\.data\.(\w+)", fields["contents"])
        written[fields["destination"].strip('"')] = key
    assert written == {f"{MOUNTED}/{key}": key for key in KEYS}


def test_external_secrets_fill_the_secret_that_the_pod_mounts() -> None:
    found = documents("external-secrets.yaml")
    store, secret = found["SecretStore"], found["ExternalSecret"]["spec"]
    assert secret["secretStoreRef"] == {"name": store["metadata"]["name"], "kind": "SecretStore"}
    assert {each["secretKey"] for each in secret["data"]} == KEYS
    assert all(each["remoteRef"]["property"] == each["secretKey"] for each in secret["data"])
    volume = patched("pod.yaml")["spec"]["template"]["spec"]["volumes"][-1]
    assert volume["secret"]["secretName"] == secret["target"]["name"]


def test_the_csi_driver_writes_each_file() -> None:
    spec = documents("csi-driver.yaml")["SecretProviderClass"]
    listed = yaml.safe_load(spec["spec"]["parameters"]["secrets"])
    assert {each["path"] for each in listed} == KEYS
    assert all(each["resourceName"].endswith("/versions/latest") for each in listed)
    volume = patched("pod-csi.yaml")["spec"]["template"]["spec"]["volumes"][-1]
    assert volume["csi"]["volumeAttributes"]["secretProviderClass"] == spec["metadata"]["name"]


@pytest.mark.parametrize("name", PATCHES)
def test_a_patched_deployment_is_valid_and_mounts_the_folder_whole(name: str) -> None:
    deployment = patched(name)
    kubernetes_validate.validate(deployment, kubernetes_validate.latest_version(), strict=True)
    pod = deployment["spec"]["template"]["spec"]
    mount = pod["containers"][0]["volumeMounts"][-1]
    assert mount["mountPath"] == MOUNTED
    assert mount["name"] == pod["volumes"][-1]["name"]
    assert "subPath" not in mount  # Kubernetes never writes that again


def test_every_recipe_is_in_the_manual() -> None:
    manual = (CONFIG.parent / "docs" / "keys.md").read_text(encoding="utf-8")
    assert all(f"config/secrets/{path.name}" in manual for path in FOLDER.iterdir())
