"""From file, environment and command line to settings."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.settings import ConfigurationError, Settings, load_address, load_database_url, locate

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]
MODEL = "providers: { ollama: }\nmodels: { m: { deployments: [ollama/x] } }\n"


def test_an_empty_file_is_all_defaults(loaded: Load) -> None:
    settings = loaded("# nothing yet\n")

    assert (settings.host, settings.port, settings.workers) == ("127.0.0.1", 4000, 1)
    assert settings.timeouts.ttft_timeout_s == 120


def test_the_command_line_is_stronger_than_the_environment_and_that_than_the_file(loaded: Load) -> None:
    settings = loaded(
        "port: 1\nregion: file\nreplica: file\n",
        {"HOLESHOT_PORT": "2", "HOLESHOT_REGION": "environment"},
        port=3,
        region=None,
    )

    assert (settings.port, settings.region, settings.replica) == (3, "environment", "file")


def test_a_nested_variable_changes_one_value_of_a_section(loaded: Load) -> None:
    text = "timeouts: { ttft_timeout_s: 60, stall_timeout_s: 30 }\n"

    timeouts = loaded(text, {"HOLESHOT_TIMEOUTS__STALL_TIMEOUT_S": "10"}).timeouts

    assert (timeouts.connect_timeout_s, timeouts.ttft_timeout_s, timeouts.stall_timeout_s) == (5, 60, 10)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *(("0.2", 0.2), ("1e-1", 0.1), ("4000", 4000), ("1_000", 1000), ("true", True), ("null", None), ("[1]", [1])),
        *(('"0.2"', "0.2"), ("low", "low"), ("2026-01-01", "2026-01-01"), ("a: b", "a: b"), ("${X:-060}", "060")),
        ('{"type": "enabled"}', {"type": "enabled"}),
    ],
)
def test_a_parameter_of_requests_in_a_variable_is_read_as_in_the_file(loaded: Load, text: str, meant: object) -> None:
    settings = loaded(MODEL, {"HOLESHOT_MODELS__M__DEFAULTS__X": text})
    assert settings.models["m"].defaults == {"x": meant}


def test_a_provider_can_come_from_variables_alone(loaded: Load) -> None:
    settings = loaded(None, {"HOLESHOT_PROVIDERS__BOX__BASE_URL": "http://10.0.0.5:8000/v1"})

    assert list(settings.providers) == ["box"]


def service_link(service: str, *, protocol: str = "tcp", address: str = "10.0.0.1", port: int = 6379) -> dict[str, str]:
    """Return the variables that Kubernetes makes for a service."""
    name = service.upper().replace("-", "_")
    transport = f"{name}_PORT_{port}_{protocol.upper()}"
    url = f"{protocol}://{f'[{address}]' if ':' in address else address}:{port}"
    return {
        f"{name}_SERVICE_HOST": address,
        f"{name}_SERVICE_PORT": str(port),
        f"{name}_SERVICE_PORT_TCP_REDIS": str(port),
        f"{name}_PORT": url,
        transport: url,
        f"{transport}_PROTO": protocol,
        f"{transport}_PORT": str(port),
        f"{transport}_ADDR": address,
    }


@pytest.mark.parametrize(
    "service",
    [
        "holeshot", "holeshot-redis", "holeshot-postgresql-primary", "holeshot-metrics", "holeshot-host",
        "holeshot-workers", "holeshot-port", "holeshot-service-host", "holeshot-database-url", "holeshot-my--db",
    ],
)  # fmt: skip
@pytest.mark.parametrize(("protocol", "address"), [("tcp", "10.0.0.1"), ("udp", "fd00::1"), ("sctp", "10.0.0.1")])
def test_variables_of_kubernetes_services_are_not_settings(
    loaded: Load, service: str, protocol: str, address: str
) -> None:
    link = service_link(service, protocol=protocol, address=address)

    settings = loaded(None, link)

    assert settings == loaded(None)
    assert settings.port == 4000


def test_a_provider_may_be_called_like_a_service(loaded: Load) -> None:
    settings = loaded(None, {"HOLESHOT_PROVIDERS__MY_SERVICE_HOST__BASE_URL": "http://10.0.0.5:8000/v1"})

    assert list(settings.providers) == ["my_service_host"]


def test_settings_read_nothing_but_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLESHOT_PORT", "9")

    assert Settings().port == 4000


def test_without_a_file_vendors_whose_variable_is_set_are_providers(loaded: Load) -> None:
    settings = loaded(
        None, {"GROQ_KEY": "gsk", "ANTHROPIC_API_KEY": "a", "CEREBRAS_API_KEY": "", "AZURE_API_KEY": "no base URL"}
    )

    assert list(settings.providers) == ["groq", "anthropic"]
    assert settings.providers["groq"].api_key is not None
    assert settings.providers["groq"].api_key.get_secret_value() == "gsk"


def test_with_no_keys_at_all_there_are_no_providers(loaded: Load) -> None:
    assert loaded(None).providers == {}


def test_a_list_of_providers_is_the_whole_list(loaded: Load) -> None:
    assert list(loaded("providers: { ollama: }\n", {"GROQ_API_KEY": "gsk"}).providers) == ["ollama"]


def test_a_vendor_that_only_a_deployment_names_becomes_a_provider(loaded: Load) -> None:
    settings = loaded(
        "providers: { ollama: }\nmodels: { m: { deployments: [groq/x, ollama/x] } }\n", {"GROQ_API_KEY": "gsk"}
    )

    assert list(settings.providers) == ["ollama", "groq"]


def test_a_provider_without_a_key_takes_its_vendors_usual_variable(loaded: Load) -> None:
    provider = loaded("providers: { fast: { preset: groq } }\n", {"GROQ_API_KEY": "gsk"}).providers["fast"]

    assert provider.api_key is not None
    assert provider.api_key.get_secret_value() == "gsk"


def test_several_keys_are_a_list_or_have_names(loaded: Load) -> None:
    text = "providers: { groq: { api_keys: [one, two] }, cerebras: { api_keys: { search: '${KEY}', batch: two } } }"
    settings = loaded(text, {"KEY": "x"})
    a, b = settings.providers["groq"], settings.providers["cerebras"]
    assert [key.get_secret_value() for key in (*a.keys, *b.keys)] == ["one", "two", "x", "two"]
    assert (a.key_names, b.key_names) == ((None, None), ("search", "batch"))


def test_a_usual_key_is_not_sent_to_another_host(loaded: Load) -> None:
    provider = loaded(
        "providers: { groq: { base_url: 'https://elsewhere.test' } }\n", {"GROQ_API_KEY": "gsk"}
    ).providers["groq"]

    assert provider.api_key is None


def test_a_vendor_without_a_base_url_of_its_own_takes_its_usual_key(loaded: Load) -> None:
    provider = loaded(
        "providers: { azure: { base_url: 'https://me.azure.test' } }\n", {"AZURE_API_KEY": "key"}
    ).providers["azure"]

    assert provider.api_key is not None


def test_a_section_with_every_line_commented_out_is_as_if_left_out(loaded: Load) -> None:
    text = "providers:\nclients:\nredis_url:\nmodels:\n  m:\n    deployments: [ollama/x]\n    race:\n    timeouts:\n"

    settings = loaded(text)

    assert settings.clients == {}
    assert settings.models["m"].race.budget == 1.0


def test_a_deployment_is_a_name_or_an_object(loaded: Load) -> None:
    text = "models: { m: { deployments: [ollama/x, { deployment: ollama/x, as: x@second }] } }\n"

    assert [deployment.name for deployment in loaded(text).models["m"].deployments] == ["ollama/x", "x@second"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@h/d",
        "postgres://h/d",
        "postgresql+asyncpg://h/d",
        "sqlite:///var/x.db",
        "sqlite+aiosqlite:///x.db",
    ],
)
def test_a_database_url_needs_no_driver(loaded: Load, url: str) -> None:
    assert loaded(f"database_url: {url}\n").database_url.get_secret_value() == url


def test_no_secret_is_in_the_repr_of_settings(loaded: Load) -> None:
    text = "providers: { groq: { api_key: gsk-secret, headers: { x: gsk-secret } } }\n"

    settings = loaded(text + "database_url: postgres://u:secret@h/d\nreports_database_url: postgres://u:secret@r/d\n")

    assert "secret" not in repr(settings).lower().replace("secretstr", "").replace("secrets=secretsettings", "")


def test_the_file_is_the_option_else_the_variable_else_the_default_where_it_exists(tmp_path: Path) -> None:
    default = tmp_path / "gateway.yaml"
    variable = {"HOLESHOT_CONFIG": "from-variable.yaml"}

    assert locate(Path("option.yaml"), variable, default) == Path("option.yaml")
    assert locate(None, variable, default) == Path("from-variable.yaml")
    assert locate(None, {}, default) is None
    default.touch()
    assert locate(None, {}, default) == default


def test_the_database_url_can_be_had_while_providers_keys_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("providers: { groq: { api_key: ${MISSING} } }\ndatabase_url: postgresql://h/${NAME}\n")

    assert load_database_url(path, {"NAME": "ledger"}).get_secret_value() == "postgresql://h/ledger"
    with pytest.raises(ConfigurationError, match="NAME is not set"):
        load_database_url(path, {})
    with pytest.raises(ConfigurationError, match="postgresql://"):
        load_database_url(None, {"HOLESHOT_DATABASE_URL": "mysql://h/d"})


def test_what_only_reads_for_people_reads_the_replica_if_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("database_url: postgresql://primary/x\n")
    replica = {"HOLESHOT_REPORTS_DATABASE_URL": "postgresql://replica/x"}

    assert load_database_url(path, {}, for_reports=True).get_secret_value() == "postgresql://primary/x"
    assert load_database_url(path, replica, for_reports=True).get_secret_value() == "postgresql://replica/x"
    assert load_database_url(path, replica).get_secret_value() == "postgresql://primary/x"


@pytest.mark.parametrize(
    ("text", "environ", "url"),
    [
        ("", {}, "http://127.0.0.1:4000"),
        ("port: 4001", {}, "http://127.0.0.1:4001"),
        ("port: 4001", {"HOLESHOT_PORT": "4002"}, "http://127.0.0.1:4002"),
        ("host: 0.0.0.0\nport: 80\nclients: { a: { key_sha256: '...' } }", {}, "http://127.0.0.1:80"),
        ("host: '::1'\ntls: { certificate: a.pem, key: b.pem }", {}, "https://[::1]:4000"),
    ],
)
def test_programs_of_this_machine_find_the_gateway_by_the_configuration(
    tmp_path: Path, text: str, environ: dict[str, str], url: str
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(text, encoding="utf-8")
    assert load_address(path, environ) == url
