"""The container files, held against what they call: no container engine is needed to see them drift."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from gateway.cli.main import application
from gateway.settings import load
from gateway.settings.environment import NOT_SETTINGS, PREFIX
from gateway.settings.model import Settings

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
VERBS = set(get_command(application()).commands)  # type: ignore[attr-defined]  # the application is a group of verbs


def instruction(name: str) -> list[str]:
    """The arguments of the Dockerfile's last instruction ``name``, in exec form."""
    found = re.findall(rf"^\s*{name} (\[.*\])$", DOCKERFILE, re.MULTILINE)
    return list(json.loads(found[-1]))


def environment_of(service: str) -> dict[str, str]:
    """The variables of a service, as compose would fill them in."""
    made_up = {"POSTGRES_PASSWORD": "secret", "OWNER_KEY_SHA256": "a" * 64}
    return {
        name: re.sub(r"\$\{(\w+):\?[^}]*\}", lambda match: made_up[match[1]], value)
        for name, value in SERVICES[service]["environment"].items()
    }


def test_every_variable_of_ours_is_a_setting() -> None:
    for service in ("gateway", "migrate"):
        ours = {name.removeprefix(PREFIX) for name in environment_of(service) if name.startswith(PREFIX)}
        assert {name.lower() for name in ours - NOT_SETTINGS} <= set(Settings.model_fields)


def test_the_gateway_starts_with_the_mounted_configuration() -> None:
    settings = load(ROOT / "config" / "compose.yaml", environment_of("gateway") | {"GROQ_API_KEY": "k"})

    assert (settings.host, settings.port) == ("0.0.0.0", 4000)
    assert list(settings.providers) == ["groq"]
    assert settings.clients["owner"].admin
    assert settings.database_url.get_secret_value() == "postgresql://holeshot:secret@postgres:5432/holeshot"


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
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    assert SERVICES["gateway"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert SERVICES["gateway"]["depends_on"]["redis"]["condition"] == "service_healthy"


@pytest.mark.parametrize("service", list(SERVICES))
def test_nobody_runs_as_root_or_may_become_it(service: str) -> None:
    assert SERVICES[service]["user"] not in ("root", "0", "0:0")
    assert "no-new-privileges:true" in SERVICES[service]["security_opt"]


def test_the_image_runs_as_the_user_compose_names() -> None:
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == [SERVICES["gateway"]["user"]]


def test_what_lasts_is_in_named_volumes() -> None:
    used = {volume.partition(":")[0] for service in SERVICES.values() for volume in service["volumes"]}

    assert {name for name in used if not name.startswith(".")} == set(COMPOSE["volumes"])
    assert environment_of("gateway")["HOLESHOT_SPOOL_DIR"].startswith("/var/lib/holeshot/")
    assert "spool:/var/lib/holeshot" in SERVICES["gateway"]["volumes"]


def test_ports_are_published_on_loopback_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]

    assert published == ["127.0.0.1:4000:4000"]


def test_health_is_asked_for_at_the_route_the_gateway_has() -> None:
    assert "http://127.0.0.1:4000/health/ready" in DOCKERFILE
    assert all("healthcheck" in SERVICES[service] for service in ("postgres", "redis"))


def test_a_gateway_that_is_told_to_stop_has_time_for_its_calls_and_its_rows() -> None:
    settings = load(ROOT / "config" / "compose.yaml", environment_of("gateway") | {"GROQ_API_KEY": "k"})
    seconds = float(SERVICES["gateway"]["stop_grace_period"].removesuffix("s"))

    assert seconds >= settings.lame_duck_s + settings.shutdown_grace_s + 5


def test_no_secret_has_a_default() -> None:
    assert SERVICES["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
    example = (ROOT / "config" / "compose.env.example").read_text(encoding="utf-8")
    assert re.findall(r"^#?(\w+)=(.+)$", example, re.MULTILINE) == []


def test_what_the_image_copies_exists() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)

    for source in " ".join(copied).split():
        assert (ROOT / source).exists(), source


def test_what_the_image_copies_is_not_ignored() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = " ".join(re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)).split()

    assert all(any(Path(source).match(pattern) for pattern in kept) for source in copied)
