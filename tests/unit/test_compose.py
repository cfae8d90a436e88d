"""The container files, held against what they call: no container engine is needed to see them drift."""

import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from typer.main import get_command

from gateway.cli.main import application
from gateway.settings import ClientRole, Settings, load
from gateway.settings.loader import NOT_SETTINGS, PREFIX
from providers.upstreams.extras import EXTRAS

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
CONFIG = ROOT / "config" / "compose.yaml"
MAKE_SECRETS = ROOT / "config" / "container" / "make_secrets.py"
MONITORING = ROOT / "config" / "monitoring"
SCRAPES = yaml.safe_load((MONITORING / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
SECRETS = "/etc/holeshot/secrets"
REPLICAS = ("gateway", "gateway-2", "gateway-3")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
VERBS = set(get_command(application()).commands)  # type: ignore[attr-defined]  # the application is a group of verbs


def instruction(name: str) -> list[str]:
    """The arguments of the Dockerfile's last instruction ``name``, in exec form."""
    found = re.findall(rf"^\s*{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return list(json.loads(found[-1]))


def environment_of(service: str) -> dict[str, str]:
    """The variables of a service, as compose would fill them in where nobody has given any."""
    return {
        name: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for name, value in SERVICES[service]["environment"].items()
    }


def made_secrets(folder: Path, **given: str) -> str:
    """Run the script of the service make-secrets on ``folder``; return what it said."""
    command = [sys.executable, "-I", str(MAKE_SECRETS), str(folder)]
    return subprocess.run(command, env=given, check=True, capture_output=True, text=True).stdout


def loaded(folder: Path, **given: str) -> Settings:
    """The gateway's settings at the first start: secrets made in ``folder``, and what .env says."""
    made_secrets(folder)
    path = folder / "compose.yaml"
    path.write_text(CONFIG.read_text(encoding="utf-8").replace(SECRETS, str(folder)), encoding="utf-8")
    return load(path, environment_of("gateway") | given)


def test_the_compose_file_is_valid() -> None:
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "docker-compose.yml",
    ]
    checked = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout


def test_hadolint_has_nothing_to_say_of_the_dockerfile() -> None:
    command = [str(Path(sys.executable).parent / "hadolint"), "--no-color", "Dockerfile"]
    checked = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_every_variable_of_ours_is_a_setting() -> None:
    for service in ("gateway", "migrate"):
        ours = {name.removeprefix(PREFIX) for name in environment_of(service) if name.startswith(PREFIX)}
        assert {name.lower() for name in ours - NOT_SETTINGS} <= set(Settings.model_fields)


def test_the_gateway_starts_with_the_mounted_configuration_and_the_secrets_that_were_made(tmp_path: Path) -> None:
    settings = loaded(tmp_path, GROQ_API_KEY="k")

    assert (settings.host, settings.port) == ("0.0.0.0", 4000)
    assert list(settings.providers) == ["groq"]
    assert settings.clients["owner"].role == "admin"
    password = (tmp_path / "postgres_password").read_text()
    assert settings.database_url.get_secret_value() == f"postgresql://holeshot:{password}@postgres:5432/holeshot"


def test_nothing_has_to_be_given_before_the_first_start() -> None:
    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    assert re.findall(r"\$\{\w+(?!\w|:-)", text) == []
    assert SERVICES["gateway"]["env_file"] == [{"path": ".env", "required": False}]


def test_secrets_are_made_once(tmp_path: Path) -> None:
    assert "owner_key" in made_secrets(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    ours = {"postgres_password", "database_url", "owner_key", "owner_key_sha256"}
    ours |= {"reader_password", "reader_url", "admin_password"}
    assert set(made) == ours | {"prometheus_key", "prometheus_key_sha256", "grafana_password"}
    assert len(made["postgres_password"]) >= 32

    assert made_secrets(tmp_path) == ""
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == made


def test_secrets_that_are_given_go_before_those_that_were_made(tmp_path: Path) -> None:
    made_secrets(tmp_path)
    made_secrets(tmp_path, POSTGRES_PASSWORD="p@ss/word", OWNER_KEY_SHA256="a" * 64)

    assert (tmp_path / "postgres_password").read_text() == "p@ss/word"
    assert "p%40ss%2Fword@" in (tmp_path / "database_url").read_text()
    assert (tmp_path / "owner_key_sha256").read_text() == "a" * 64


def test_only_what_other_containers_need_is_readable_for_them(tmp_path: Path) -> None:
    made_secrets(tmp_path)
    readable = {path.name for path in tmp_path.iterdir() if path.stat().st_mode & 0o077}
    of_postgres = {"postgres_password", "reader_password", "admin_password"}
    assert readable == {*of_postgres, "prometheus_key", "grafana_password"}


def test_the_gateway_is_no_superuser_and_another_role_only_reads(tmp_path: Path) -> None:
    made_secrets(tmp_path)
    environment = SERVICES["postgres"]["environment"]
    assert "POSTGRES_USER" not in environment  # so the superuser is postgres, whose password the gateway does not have
    assert environment["POSTGRES_PASSWORD_FILE"].endswith("/admin_password")
    roles = (ROOT / "config" / "container" / "roles.sh").read_text(encoding="utf-8")
    assert "./config/container/roles.sh:/docker-entrypoint-initdb.d/roles.sh:ro" in SERVICES["postgres"]["volumes"]
    for name, url in (("holeshot", "database_url"), ("holeshot_reader", "reader_url")):
        assert (tmp_path / url).read_text().startswith(f"postgresql://{name}:")
        assert f"create role {name} login password" in roles
    assert "superuser" not in roles.partition("set -eu")[2]
    mounted = environment["POSTGRES_PASSWORD_FILE"].rsplit("/", 1)[0]
    assert all(
        f"$secrets/{name}" in roles and (tmp_path / name).is_file() for name in ("postgres_password", "reader_password")
    )
    assert f":-{mounted}}}" in roles


def test_prometheus_reads_metrics_with_a_key_that_makes_no_calls(tmp_path: Path) -> None:
    client = loaded(tmp_path).clients["prometheus"]
    key = (tmp_path / "prometheus_key").read_text()
    assert client.role is ClientRole.VIEWER
    assert client.key_sha256 == (hashlib.sha256(key.encode()).hexdigest(),)
    assert SCRAPES[0]["authorization"] == {"credentials_file": "/run/holeshot/secrets/prometheus_key"}
    assert "secrets:/run/holeshot/secrets:ro" in SERVICES["prometheus"]["volumes"]
    port = SERVICES["gateway"]["environment"]["HOLESHOT_PORT"]  # whatever .env says: it moves the port outside only
    assert SCRAPES[0]["static_configs"] == [{"targets": [f"gateway:{port}"]}]
    (found,) = SCRAPES[0]["dns_sd_configs"]
    assert (found["type"], found["port"]) == ("A", int(port))
    assert all(SERVICES[replica]["networks"]["default"]["aliases"] == found["names"] for replica in REPLICAS[1:])


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_monitoring_starts_only_when_asked_for_with_pinned_images_and_files_that_are_there(service: str) -> None:
    described = SERVICES[service]
    assert described["profiles"] == ["monitoring"]
    assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", described["image"])
    mounted = [source for source, *_ in (each.split(":") for each in described["volumes"]) if source.startswith("./")]
    assert [source for source in mounted if not (ROOT / source).exists()] == []


def test_replicas_are_gateways_that_start_when_asked_for_and_share_all_but_their_spool() -> None:
    own = {"profiles", "volumes", "ports", "networks"}
    spools = set()
    for replica in REPLICAS:
        described = SERVICES[replica]
        assert {name: described[name] for name in described if name not in own} == {
            name: SERVICES["gateway"][name] for name in SERVICES["gateway"] if name not in own
        }
        assert described.get("profiles") == (None if replica == "gateway" else ["replicas"])
        *shared, spool = described["volumes"]
        assert shared == SERVICES["gateway"]["volumes"][:-1]
        assert spool.endswith(":/var/lib/holeshot")
        spools.add(spool)
    assert len(spools) == len(REPLICAS) == 3


def test_grafana_has_the_dashboards_where_it_looks_for_them() -> None:
    (provider,) = yaml.safe_load((MONITORING / "grafana/dashboards/holeshot.yml").read_text())["providers"]
    folder = provider["options"]["path"]
    assert f"./config/monitoring/dashboards:{folder}:ro" in SERVICES["grafana"]["volumes"]
    home = SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (MONITORING / "dashboards" / home.removeprefix(f"{folder}/")).exists()
    (source,) = yaml.safe_load((MONITORING / "grafana/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_secrets_are_read_where_they_are_made(tmp_path: Path) -> None:
    assert f"secrets:{SECRETS}" in SERVICES["make-secrets"]["volumes"]
    assert SERVICES["make-secrets"]["command"] == [SECRETS]
    for service in ("gateway", "migrate"):
        assert f"secrets:{SECRETS}:ro" in SERVICES[service]["volumes"]
    folder, name = SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"].rsplit("/", 1)
    assert f"secrets:{folder}:ro" in SERVICES["postgres"]["volumes"]
    made_secrets(tmp_path)
    assert (tmp_path / name).is_file()
    assert f"install --directory --owner 10001 --group 10001 {SECRETS}" in DOCKERFILE  # whose the volume then is


def test_the_mounted_configuration_is_the_one_the_gateway_reads() -> None:
    for service in ("gateway", "migrate"):
        source, target, mode = SERVICES[service]["volumes"][0].split(":")
        assert (ROOT / source).is_file()
        assert target == environment_of(service)["HOLESHOT_CONFIG"]
        assert mode == "ro"


def test_commands_are_verbs_of_the_command_line() -> None:
    assert instruction("ENTRYPOINT") == ["holeshot"]
    assert {*instruction("CMD"), *SERVICES["gateway"]["command"], *SERVICES["migrate"]["command"]} <= VERBS


def test_the_schema_is_migrated_before_the_gateway_starts() -> None:
    assert SERVICES["postgres"]["depends_on"]["make-secrets"]["condition"] == "service_completed_successfully"
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert SERVICES["gateway"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert SERVICES["gateway"]["depends_on"]["redis"]["condition"] == "service_healthy"


@pytest.mark.parametrize("service", list(SERVICES))
def test_nobody_runs_as_root_or_may_become_it(service: str) -> None:
    assert SERVICES[service]["user"] not in ("root", "0", "0:0")
    assert "no-new-privileges:true" in SERVICES[service]["security_opt"]


@pytest.mark.parametrize("service", list(SERVICES))
def test_everything_has_limits_and_a_log_that_does_not_grow_for_ever(service: str) -> None:
    assert set(SERVICES[service]["deploy"]["resources"]["limits"]) == {"cpus", "memory", "pids"}
    assert set(SERVICES[service]["logging"]["options"]) == {"max-size", "max-file"}


def test_the_image_runs_as_the_user_compose_names() -> None:
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == [SERVICES["gateway"]["user"]]


def test_what_lasts_is_in_named_volumes() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]}

    assert {name for name in used if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert environment_of("gateway")["HOLESHOT_SPOOL_DIR"].startswith("/var/lib/holeshot/")
    assert "spool:/var/lib/holeshot" in SERVICES["gateway"]["volumes"]


def test_ports_are_published_on_loopback_only() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published == {
        "gateway": ["127.0.0.1:${HOLESHOT_PORT:-4000}:4000"],
        "gateway-2": ["127.0.0.1:${GATEWAY_2_PORT:-4001}:4000"],
        "gateway-3": ["127.0.0.1:${GATEWAY_3_PORT:-4002}:4000"],
        "prometheus": ["127.0.0.1:${PROMETHEUS_PORT:-9090}:9090"],
        "grafana": ["127.0.0.1:${GRAFANA_PORT:-3000}:3000"],
    }
    assert SERVICES["gateway"]["environment"]["HOLESHOT_PORT"] == "4000"


def test_health_is_asked_for() -> None:
    assert re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE) == [
        '["python", "-I", "/opt/holeshot/container/health.py"]'
    ]
    assert "COPY config/container /opt/holeshot/container" in DOCKERFILE
    assert all("healthcheck" in SERVICES[service] for service in ("postgres", "redis"))


def test_a_gateway_that_is_told_to_stop_has_time_for_its_calls_and_its_rows(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    seconds = float(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))

    assert seconds >= settings.lame_duck_s + settings.shutdown_grace_s + 5


def test_no_secret_has_a_default() -> None:
    assert set(environment_of("make-secrets").values()) == {""}
    example = (ROOT / "config" / "compose.env.example").read_text(encoding="utf-8")
    assert re.findall(r"^#?(\w+)=(.+)$", example, re.MULTILINE) == []


def test_what_the_image_copies_exists() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)

    for source in " ".join(copied).split():
        assert (ROOT / source).exists(), source


def test_the_image_copies_what_the_wheel_is_built_of() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"][
        "wheel"
    ]
    folders = {*build.get("packages", ()), *build.get("only-include", ()), *build.get("force-include", ())}
    files = {path for path in folders if Path(path).suffix}
    assert {folder for folder in folders - files if f"COPY {folder} {folder}" not in DOCKERFILE} == set()
    assert {path for path in files if f"COPY {path} {Path(path).parent}/" not in DOCKERFILE} == set()


def test_what_the_image_copies_is_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = " ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)).split()

    assert all(any(Path(source).match(pattern) for pattern in kept) for source in copied)


def needed(names: Iterable[str]) -> set[str]:
    """The distributions that ``names`` need, and they themselves, as far as they are installed."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    seen: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        key = f"{normal(wanted.name)}{sorted(wanted.extras)}"
        if key in seen or (wanted.marker and not wanted.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        found.add(normal(wanted.name))
        for text in stated(wanted.name):
            further = Requirement(text)
            if further.marker is None or any(
                further.marker.evaluate({"extra": extra}) for extra in wanted.extras | {""}
            ):
                further.marker = None
                waiting.append(further)
    return found


def stated(name: str) -> Iterable[str]:
    """What a distribution says that it needs; nothing if it is not installed."""
    try:
        return importlib.metadata.requires(name) or ()
    except importlib.metadata.PackageNotFoundError:
        return ()


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_builds_the_wheel_is_not_in_the_image() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    # Neither frameworks of programs are in it, nor what people's laptops need.
    extras = [name for extra, names in EXTRAS.items() if extra != "login" for name in names]
    tools = needed(project["dependency-groups"]["build"]) - needed([*project["project"]["dependencies"], *extras])
    [removed] = re.findall(r"/opt/holeshot/bin/pip uninstall --yes (.+)$", DOCKERFILE, re.MULTILINE)

    assert "hatchling" in tools
    assert set(removed.split()) - {"pip"} == tools
    assert "python -m pip uninstall" in DOCKERFILE.rsplit("FROM", 1)[1]
