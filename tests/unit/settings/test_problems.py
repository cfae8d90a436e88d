"""Every mistake in a configuration is explained by one sentence, with its place and line, and all at once."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.settings import ConfigurationError, Settings, load, load_clickhouse, load_database_url
from providers import how_to_install

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]
HASH = "a" * 64


def test_an_unknown_key_is_refused_with_the_nearest_known_one_and_its_line(problems: Problems) -> None:
    text = "port: 4000\nproviders:\n  ollama:\n    base_ulr: http://127.0.0.1\n"

    assert problems(text) == ["gateway.yaml:4: providers.ollama.base_ulr: unknown key; did you mean 'base_url'?"]


def test_a_key_cannot_write_to_the_terminal(problems: Problems) -> None:
    (problem,) = problems('"\\e[31mred\\n": 1\n')

    assert problem.startswith("gateway.yaml:1: \\x1b[31mred\\n: unknown key")


@pytest.mark.parametrize("url", ["http://[::1", "http://", "https://host:port/v1", "https:///v1"])
def test_an_address_that_is_none_is_refused(problems: Problems, url: str) -> None:
    (problem,) = problems(f"providers:\n  mine: {{ base_url: '{url}' }}\n")

    assert problem.endswith("providers.mine.base_url: is not a URL: write it like https://api.example.com/v1")


@pytest.mark.parametrize(
    ("provider", "place", "words"),
    [
        ("{ preset: groq, api_key: ${KEY} }", "api_key", "has a character that no key has, such as a line break"),
        ("{ preset: groq, api_keys: [gsk-1, ${KEY}] }", "api_keys[1]", "has a character that no key has"),
        ("{ preset: groq, api_key: gsk-1, organization: ${KEY} }", "organization", "cannot be sent as a header field"),
        ("{ base_url: 'http://h/v1', headers: { x-team: ${KEY} } }", "headers.x-team", "cannot be sent as a header"),
        ("{ base_url: 'http://h/v1', headers: { 'x team': a } }", "headers.x team", "cannot be sent as a header"),
        ("{ base_url: 'https://me:pw@h/v1', api_key: gsk-1 }", "base_url", "names a user, and there is a key"),
    ],
)
def test_what_no_request_could_have_is_refused_before_the_start(
    problems: Problems, provider: str, place: str, words: str
) -> None:
    (problem,) = problems(f"providers:\n  mine: {provider}\n", {"KEY": "gsk-secret\r"})  # of a file from Windows

    assert problem.startswith(f"gateway.yaml:2: providers.mine.{place}: {words}")
    assert "gsk-secret" not in problem


@pytest.mark.parametrize(
    ("provider", "key", "words"),
    [
        ("{ base_url: 'https://me:pw@h/v1' }", "gsk-secret", "no key can be brought for 'mine': its base_url names a"),
        ("{ base_url: 'http://h/v1' }", "gsk-secret", "no key can be brought for 'mine': it may need none"),
        ("{ kind: litellm, preset: groq }", "gsk-secret", "no key can be brought for 'mine': litellm may use other"),
        ("{ preset: groq, api_key: gsk-1 }", "gsk-secret" * 52, "is longer than 512 characters"),
    ],
)
def test_a_clients_key_is_for_a_provider_that_looks_at_it(
    problems: Problems, provider: str, key: str, words: str
) -> None:
    client = f"{{ key_sha256: {'0' * 64}, provider_keys: {{ mine: '${{KEY}}' }} }}"
    text = f"providers:\n  mine: {provider}\nclients:\n  app: {client}\n"
    found = problems(text, {"KEY": key})

    assert any(f"clients.app.provider_keys.mine: {words}" in problem for problem in found), found
    assert "gsk-secret" not in repr(found)


@pytest.mark.parametrize(
    "key", ["“gsk-secret”", "\u2018gsk-secret\u2019", "gsk-secret\u200b", "gsk-secret\u00a0", "gsk-sécret"]
)
@pytest.mark.parametrize("form", ["api_key: {}", "api_keys: [gsk-1, {}]", "api_keys: {{ a: {} }}"])
@pytest.mark.parametrize("preset", ["groq", "anthropic"])  # anthropic is called through litellm here
def test_a_key_has_the_characters_of_keys(problems: Problems, preset: str, form: str, key: str) -> None:
    text = f"providers: {{ mine: {{ preset: {preset}, {form.format('${KEY}')} }} }}\n"
    (problem,) = problems(text, {"KEY": key})

    assert problem.endswith(
        "has a character that no key has, such as a line break or a curly quote: look where it is set"
    )
    assert "cret" not in problem


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ('"gsk-secret"', "is in quotes"),
        ("'gsk-secret'", "is in quotes"),
        (" gsk-secret", "has blanks around it"),
        ("gsk-secret\t", "has"),
        ("Bearer gsk-secret", "begins with 'Bearer'"),
        (" bearer gsk-secret", "begins with 'Bearer'"),
    ],
)
@pytest.mark.parametrize("form", ["api_key: {}", "api_keys: [gsk-1, {}]"])
def test_what_stands_around_a_key_is_no_part_of_it(problems: Problems, form: str, key: str, words: str) -> None:
    (problem,) = problems(f"providers: {{ groq: {{ {form.format('${KEY}')} }} }}\n", {"KEY": key})

    assert words in problem
    assert "secret" not in problem


@pytest.mark.parametrize("value", ["${KEY}", "Bearer ${KEY}"])
@pytest.mark.parametrize("header", ["api-key", "Authorization", "x-auth-token"])
@pytest.mark.parametrize("place", ["providers", "models"])
def test_a_key_in_a_header_is_not_in_quotes(
    problems: Problems, loaded: Load, place: str, header: str, value: str
) -> None:
    own, ones = (f"headers: {{ {header}: '{value}' }}", "") if place == "providers" else ("", f"{header}: '{value}'")
    text = f"providers: {{ a: {{ base_url: 'https://h/v1', {own} }} }}\n"
    text += f"models: {{ m: {{ deployments: [{{ deployment: a/m, extra_headers: {{ {ones} }} }}] }} }}\n"
    (problem,) = problems(text, {"KEY": '"sk-secret"'})
    assert f"{header}: is in quotes" in problem
    assert "secret" not in problem
    assert loaded(text, {"KEY": "sk-secret"}).models


def test_a_key_that_is_empty_goes_with_a_user_in_the_address(loaded: Load) -> None:
    settings = loaded("providers: { mine: { base_url: 'https://me:pw@h/v1', api_key: '' } }\n")
    assert settings.providers["mine"].base_url == "https://me:pw@h/v1"


def test_a_usual_key_that_cannot_be_sent_is_refused_too(problems: Problems) -> None:
    (problem,) = problems("port: 4000\n", {"GROQ_API_KEY": "gsk-secret\r"})

    assert problem == (
        "gateway.yaml: providers.groq.api_key: has a character that no key has, such as a line break or a curly"
        " quote: look where it is set"
    )


def test_an_unknown_key_like_no_other_lists_the_known_ones(problems: Problems) -> None:
    text = (
        "models:\n  m:\n    deployments: [{ deployment: ollama/x, price_per_mtok: { input: 1, output: 2, zzz: 3 } }]\n"
    )

    (problem,) = problems(text)
    assert problem.startswith("gateway.yaml:3: models.m.deployments[0].price_per_mtok.zzz: unknown key; known: ")
    assert ": input, output, cached_input, cache_write, cache_write_1h, reasoning, " in problem


def test_a_missing_variable_is_named_with_its_place_and_the_way_out(problems: Problems) -> None:
    assert problems("providers:\n  groq: { api_key: ${GROQ_API_KEY} }\n") == [
        "gateway.yaml:2: providers.groq.api_key: GROQ_API_KEY is not set; set it or remove provider 'groq'"
    ]


def test_a_missing_key_names_the_vendors_usual_variables(problems: Problems) -> None:
    assert problems("providers: { groq: }\n") == [
        "gateway.yaml:1: providers.groq: Groq needs a key: set GROQ_API_KEY or GROQ_KEY, or remove provider 'groq'"
    ]


def test_a_deployment_of_an_unconfigured_vendor_asks_for_its_key(problems: Problems) -> None:
    (problem,) = problems("providers: { ollama: }\nmodels: { m: { deployments: [groq/x] } }\n")

    assert "set GROQ_API_KEY" in problem


def test_a_key_said_twice_is_refused_with_both_lines(problems: Problems) -> None:
    assert problems("port: 1\nhost: 127.0.0.1\nport: 2\n") == ["gateway.yaml:3: port is set twice, first in line 1"]


def test_invalid_yaml_is_explained_with_its_line_and_without_the_files_text(problems: Problems) -> None:
    (problem,) = problems("providers:\n  groq: { api_key: gsk-secret\n  port: 1\n")

    assert problem.startswith("gateway.yaml:3: invalid YAML: ")
    assert "gsk" not in problem


def test_a_tab_as_indentation_is_explained(problems: Problems) -> None:
    (problem,) = problems("providers:\n\tgroq: {}\n")

    assert problem.startswith("gateway.yaml:2: invalid YAML: ")


def test_an_undefined_alias_does_not_repeat_what_may_be_a_key(problems: Problems) -> None:
    (problem,) = problems("providers: { groq: { api_key: *secret } }\n")

    assert "secret" not in problem


def test_a_file_that_is_no_mapping_is_refused(problems: Problems) -> None:
    assert "keys and values" in problems("- a\n- b\n")[0]


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load(Path("nowhere.yaml"), {})


def test_a_deployment_at_an_unknown_provider_gets_the_nearest_name(problems: Problems) -> None:
    text = "providers:\n  ollama:\nmodels:\n  m:\n    deployments:\n      - ollama/x\n      - olama/x\n"

    assert problems(text) == [
        "gateway.yaml:7: models.m.deployments[1]: 'olama/x': there is no provider 'olama'; did you mean 'ollama'?"
    ]


def test_the_same_deployment_twice_is_refused(problems: Problems) -> None:
    (problem,) = problems("models: { m: { deployments: [ollama/x, ollama/x] } }\n")

    assert "'ollama/x' is listed twice" in problem


def test_a_provider_that_is_in_no_catalog_needs_a_base_url(problems: Problems) -> None:
    assert problems("providers: { olama: {} }\n") == [
        "gateway.yaml:1: providers.olama: is not in the catalog: set its base_url, or a preset; did you mean 'ollama'?"
    ]


def test_a_vendor_whose_base_url_is_the_users_own_must_be_given_it(problems: Problems) -> None:
    (problem,) = problems("providers: { azure: { api_key: k } }\n")

    assert "Azure OpenAI has no base_url in the catalog" in problem


def test_an_unknown_preset_gets_the_nearest_one(problems: Problems) -> None:
    (problem,) = problems("providers: { mine: { preset: grok } }\n")

    assert problem.endswith("'grok' is not in the catalog; did you mean 'groq'?")


def test_without_clients_only_loopback_can_be_bound(problems: Problems) -> None:
    assert problems("port: 1\nhost: 0.0.0.0\n") == [
        (
            "gateway.yaml:2: host: '0.0.0.0' lets others spend your keys: "
            "add clients with `holeshot keys new NAME`, or bind 127.0.0.1"
        )
    ]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.9", "::1"])
def test_loopback_needs_no_clients(loaded: Callable[..., object], host: str) -> None:
    assert loaded(None, host=host)


def test_several_workers_need_redis_and_postgres(problems: Problems) -> None:
    assert problems(None, workers=2) == [
        "--workers: several workers need a leaderboard to share: set redis_url, or workers: 1",
        "--workers: SQLite has one writer: set database_url to a postgresql:// URL, or workers: 1",
    ]


def test_a_client_is_kept_to_providers_and_models_that_exist(problems: Problems) -> None:
    text = f"providers: {{ ollama: }}\nclients:\n  a:\n    key_sha256: {HASH}\n    only: [ollamma]\n    models: [nix]\n"

    assert problems(text) == [
        "gateway.yaml:5: clients.a.only[0]: there is no provider 'ollamma'; did you mean 'ollama'?",
        "gateway.yaml:6: clients.a.models[0]: there is no model 'nix'; known: none",
    ]


def test_what_is_wrong_with_one_of_several_keys_is_said_at_its_place(problems: Problems) -> None:
    text = """\
providers:
  a:
    base_url: http://127.0.0.1
    api_keys: [one, [two]]
  b:
    base_url: http://127.0.0.1
    api_keys: { search: one, batch: {} }
  c: { base_url: http://127.0.0.1, api_keys: one }
"""
    assert problems(text) == [
        "gateway.yaml:4: providers.a.api_keys[1]: must be text; put it in quotes",
        "gateway.yaml:7: providers.b.api_keys.batch: must be text; put it in quotes",
        "gateway.yaml:8: providers.c.api_keys: must be a list of keys, or a section of names and keys",
    ]


def test_two_clients_cannot_share_a_key(problems: Problems) -> None:
    (problem,) = problems(f"clients:\n  a: {{ key_sha256: {HASH} }}\n  b: {{ key_sha256: {HASH} }}\n")

    assert "is also the key of client 'a'" in problem


def test_a_plain_key_in_place_of_its_hash_is_refused_unshown(problems: Problems) -> None:
    (problem,) = problems("clients: { a: { key_sha256: hs-secret } }\n")

    assert "holeshot keys new" in problem
    assert "hs-secret" not in problem


def test_a_misspelt_variable_is_refused_with_the_nearest_one(problems: Problems) -> None:
    assert problems(None, {"HOLESHOT_WORKRS": "2"}) == [
        "HOLESHOT_WORKRS: no such setting; did you mean 'HOLESHOT_WORKERS'?"
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOLESHOT_REDIS_PORT", "6379"),
        ("HOLESHOT_REDIS_HOST", "10.0.0.1"),
        ("HOLESHOT_REDIS_PORTS", "tcp://10.0.0.1:6379"),
        ("HOLESHOT_PORT_TCP", "tcp://10.0.0.1:6379"),
    ],
)
def test_a_variable_that_only_resembles_a_service_link_is_refused(problems: Problems, name: str, value: str) -> None:
    (problem,) = problems(None, {name: value})

    assert problem.startswith(f"{name}: no such setting; ")


def test_a_wrong_value_of_the_file_is_not_blamed_on_a_service_link(problems: Problems) -> None:
    (problem,) = problems("port: x\n", {"HOLESHOT_PORT": "tcp://10.0.0.1:4000"})

    assert problem.startswith("gateway.yaml:1: port: must be a whole number")


def test_a_wrong_value_is_blamed_on_the_variable_that_set_it(problems: Problems) -> None:
    (problem,) = problems("port: 1\n", {"HOLESHOT_PORT": "x"})

    assert problem.startswith("HOLESHOT_PORT: must be a whole number")


def test_a_variable_that_holds_broken_json_is_named(problems: Problems) -> None:
    (problem,) = problems(None, {"HOLESHOT_PROVIDERS": "{secret"})

    assert problem == "HOLESHOT_PROVIDERS: a list or a section is written as JSON, and this is none"


def test_a_variable_that_is_not_utf_8_is_named_unshown(problems: Problems) -> None:
    assert problems("port: 1\n", {"HOLESHOT_REGION": "secret\udcff"}) == ["HOLESHOT_REGION: is not UTF-8 text"]
    assert problems("region: ${WHERE}\n", {"WHERE": "secret\udcff"}) == [
        "gateway.yaml:1: region: WHERE is not UTF-8 text"
    ]
    assert problems("region: ${WHERE:-eu}\n", {"WHERE": "secret\udcff"}) == [
        "gateway.yaml:1: region: WHERE is not UTF-8 text"
    ]


def test_a_variable_of_broken_json_takes_no_other_variable_with_it() -> None:
    environ = {"HOLESHOT_PROVIDERS": "{secret", "HOLESHOT_DATABASE_URL": "sqlite:///mine.db"}

    assert load_database_url(None, environ).get_secret_value() == "sqlite:///mine.db"


def test_a_command_for_the_ledger_refuses_a_variable_of_it_that_cannot_be_read() -> None:
    with pytest.raises(ConfigurationError, match="HOLESHOT_LEDGER: a list or a section is written as JSON"):
        load_clickhouse(None, {"HOLESHOT_LEDGER": "{secret"})
    with pytest.raises(ConfigurationError, match="HOLESHOT_DATABASE_URL: is not UTF-8 text"):
        load_database_url(None, {"HOLESHOT_DATABASE_URL": "sqlite:///\udcff"})


def test_a_wrong_value_beside_a_right_one_hides_neither(problems: Problems) -> None:
    text = """\
port: 99999
hots: x
providers:
  groq: { api_key: ${MISSING} }
  ollama: { base_url: ftp://x, timeouts: { ttft_timeout_s: 0 } }
models:
  a: { deployments: [nothing, olama/x], race: { mode: fast } }
  b: {}
clients:
  c: { only: [grok] }
"""

    assert [problem.partition(":")[2].split(": ")[0] + ": " + problem.split(": ")[1] for problem in problems(text)] == [
        "1: port",
        "2: hots",
        "4: providers.groq.api_key",
        "5: providers.ollama.timeouts.ttft_timeout_s",
        "5: providers.ollama.base_url",
        "7: models.a.race.mode",
        "7: models.a.deployments[0].deployment",
        "7: models.a.deployments[1]",
        "8: models.b.deployments",
        "10: clients.c.key_sha256",
        "10: clients.c.only[0]",
    ]


def test_no_message_shows_a_value_that_may_be_a_secret(problems: Problems) -> None:
    text = """\
database_url: oracle://user:gsk-secret@host
reports_database_url: oracle://user:gsk-secret@host
redis_url: gsk-secret
providers:
  groq: { api_key: [gsk-secret], headers: gsk-secret, organization: { x: gsk-secret } }
  ollama: gsk-secret
clients: { a: { key_sha256: gsk-secret }, b: gsk-secret }
"""

    messages = problems(text, {"HOLESHOT_TIMEOUTS": "gsk-secret"})

    assert len(messages) >= 8
    assert "gsk-secret" not in "\n".join(messages)


@pytest.mark.parametrize(
    ("primary", "replica", "words"),
    [
        ("sqlite:///x.db", "postgresql://replica/x", "SQLite has none"),
        ("postgresql://primary/x", "sqlite:///x.db", "must begin with postgresql://"),
        ("postgresql://primary/x", "replica/x", "must begin with postgresql://"),
    ],
)
def test_only_postgres_has_a_replica_for_reports(problems: Problems, primary: str, replica: str, words: str) -> None:
    (problem,) = problems(f"database_url: {primary}\nreports_database_url: {replica}\n")

    assert problem.startswith("gateway.yaml:2: reports_database_url")
    assert words in problem


@pytest.mark.parametrize("number", ["inf", "nan"])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("max_body_mb: {}\n", "max_body_mb"),
        ("shutdown_grace_s: {}\n", "shutdown_grace_s"),
        (
            "models: {{ m: {{ deployments: [ollama/x], timeouts: {{ ttft_timeout_s: {} }} }} }}\n",
            "models.m.timeouts.ttft_timeout_s",
        ),
        ("models: {{ m: {{ deployments: [ollama/x], maximums: {{ n: {} }} }} }}\n", "models.m.maximums.n"),
    ],
)
def test_what_is_no_finite_number_is_refused(problems: Problems, text: str, place: str, number: str) -> None:
    assert problems(f"providers: {{ ollama: }}\n{text.format('.' + number)}") == [
        f"gateway.yaml:2: {place}: must be a finite number, not {number}"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port: 99999\n", "port: must be at most 65535, not 99999"),
        ("workers: 0\n", "workers: must be at least 1, not 0"),
        ("lame_duck_s: soon\n", "lame_duck_s: must be a number, not 'soon'"),
        ("lame_duck_s: 10s\n", "lame_duck_s: must be a number, not '10s'"),
        ("lame_duck_s: -1.5\n", "lame_duck_s: must be at least 0, not -1.5"),
        ("port: gsk-secret\n", "port: must be a whole number"),
        ("responses_store: maybe\n", "responses_store: must be true or false, not 'maybe'"),
        ("workers: yes\n", "workers: must be a number, not true or false"),
        ("alerts: { usd_per_day: on }\n", "alerts.usd_per_day: must be a number, not true or false"),
        ("log_level: loud\n", "log_level: must be 'debug', 'info', 'warning' or 'error', not 'loud'"),
    ],
)
def test_a_wrong_number_or_word_is_named_unless_it_may_be_a_secret(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [f"gateway.yaml:1: {message}"]


def test_a_switch_is_no_number_of_a_deployment_its_race_or_its_time_limits(problems: Problems) -> None:
    text = """\
models:
  m:
    deployments: [{ deployment: ollama/x, canary: true, max_in_flight: yes, drop_params: yes }]
    race: { hedge_delay_s: on, hold: yes }
    timeouts: { total_timeout_s: true }
    maximums: { n: 4, max_tokens: yes }
"""
    words = "must be a number, not true or false"

    assert problems("providers: { ollama: }\n" + text) == [
        f"gateway.yaml:{line}: models.m.{place}: {words}"
        for line, place in [
            (4, "deployments[0].canary"),
            (4, "deployments[0].max_in_flight"),
            (5, "race.hedge_delay_s"),
            (6, "timeouts.total_timeout_s"),
            (7, "maximums"),
        ]
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "providers: { ollama: { price_per_mtok: { input: 1, output: 2 } } }\n",
            "providers.ollama.price_per_mtok: unknown key; it belongs in models.NAME.deployments[]",
        ),
        (
            "models: { m: { deployments: [ollama/x], hedge_delay_s: 1 } }\n",
            "models.m.hedge_delay_s: unknown key; it belongs in models.m.race",
        ),
        (
            "models: { m: { deployments: [{ deployment: ollama/x, base_url: 'http://127.0.0.1' }] } }\n",
            "models.m.deployments[0].base_url: unknown key; it belongs in providers.NAME",
        ),
    ],
)
def test_a_key_of_another_section_is_sent_there(problems: Problems, text: str, message: str) -> None:
    assert problems(text) == [f"gateway.yaml:1: {message}"]


def test_a_long_list_of_what_is_known_is_printed_once(problems: Problems) -> None:
    first, second = problems("zzzz: 1\nyyyy: 2\n")

    assert first.startswith("gateway.yaml:1: zzzz: unknown key; known: host, port, ")
    assert second == "gateway.yaml:2: yyyy: unknown key; known: the same as above"


def test_the_vendors_are_listed_once(tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(
        "providers: { qqq: { api_key: x } }\nmodels: { m: { deployments: [wwww/x, vvvv/y] } }\n"
    )

    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "gateway.yaml", {})

    assert len(caught.value.problems) == 3
    assert str(caught.value).count("fireworks") == 1


def test_a_file_of_litellm_is_known_as_one(problems: Problems, tmp_path: Path) -> None:
    text = (
        "# mine\nmodel_list:\n  - model_name: m\n    litellm_params: { model: openai/gpt-4o, api_key: os.environ/A }\n"
    )

    (problem,) = problems(text + "litellm_settings: { drop_params: true }\n")

    assert problem == ("gateway.yaml:2: this is a LiteLLM file: convert it with `holeshot import litellm gateway.yaml`")


@pytest.mark.parametrize(
    ("provider", "place"),
    [
        ("{ base_url: 'http://127.0.0.1', api_key: $MY_KEY }", "api_key"),
        ("{ base_url: 'http://127.0.0.1', api_keys: [$MY_KEY] }", "api_keys[0]"),
        ("{ base_url: 'http://127.0.0.1', headers: { authorization: Bearer $MY_KEY } }", "headers.authorization"),
    ],
)
def test_a_reference_without_braces_is_refused(problems: Problems, provider: str, place: str) -> None:
    assert problems(f"providers: {{ mine: {provider} }}\n", {"MY_KEY": "sk-1"}) == [
        f"gateway.yaml:1: providers.mine.{place}: $MY_KEY is not a reference: write ${{MY_KEY}}"
    ]


def test_a_dollar_sign_in_the_text_of_requests_is_left_alone(loaded: Callable[..., object]) -> None:
    assert loaded("models: { m: { deployments: [ollama/x], system_prefix: Prices are in $US } }\n")


@pytest.fixture
def without_litellm(loaded: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the folder in which litellm is from the path, once everything else is imported."""
    loaded("port: 1\n")
    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if not (Path(folder) / "litellm").exists()])


@pytest.mark.usefixtures("without_litellm")
def test_a_provider_that_needs_litellm_names_the_extra(problems: Problems) -> None:
    assert problems("providers: { anthropic: { api_key: k } }\n") == [
        f"gateway.yaml:1: providers.anthropic: needs litellm: {how_to_install('litellm')}"
    ]


def test_a_misspelt_price_of_a_tier_is_refused_with_its_line_and_the_nearest_word(problems: Problems) -> None:
    text = """models:
  m:
    deployments:
      - deployment: ollama/x
        price_per_mtok:
          input: 1
          output: 2
          tiers:
            priority:
              imput: 3
"""
    (problem,) = problems(text)
    assert problem.startswith("gateway.yaml:10: models.m.deployments[0].price_per_mtok.tiers.priority.imput: unknown")
    assert problem.endswith("did you mean 'input'?")


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ('"cl*ude-*": { deployments: [groq/x] }', ": a star in a model's name stands at its end, once"),
        ("claude: { deployments: ['groq/claude-*'] }", ".deployments[0]: 'groq/claude-*' has a star, but the model's"),
        ('"claude-*": { deployments: ["groq/*-*"] }', ".deployments[0]: 'groq/*-*' may have one star, in the model's"),
        ('"claude-*": { deployments: [{ deployment: "groq/*", as: "g*" }] }', ".as: is one name for all of them"),
        (
            '"claude-*": { deployments: [{ deployment: "groq/*", max_in_flight: 2 }] }',
            ".deployments[0]: 'groq/*' stands for many, and max_in_flight is of one: give all one name with `as:`",
        ),
        ('a: { deployments: [groq/x], fallbacks: ["claude-*"] }', ".fallbacks[0]: 'claude-*' stands for many models"),
        ("a: { deployments: [groq/x], fallbacks: [claud-1] }", ".fallbacks[0]: there is no model 'claud-1'"),
    ],
)
def test_a_star_that_stands_for_nothing_is_refused(problems: Problems, model: str, problem: str) -> None:
    there = '  "claude-opus-*": { deployments: [groq/x] }\n'
    (found,) = problems(f"providers:\n  groq: {{ api_key: x }}\nmodels:\n{there}  {model}\n")

    assert problem in found


@pytest.mark.parametrize(
    "model",
    [
        '"*": { deployments: ["groq/*"] }',
        '"eu-*": { deployments: ["groq/eu.anthropic.*-v1:0"] }',
        '"gpt-*": { deployments: [groq/one], fallbacks: [claude-opus-4-8] }',
        '"own-*": { deployments: [{ deployment: "groq/*", as: own, max_in_flight: 2 }] }',
    ],
)
@pytest.mark.parametrize("asked", ["claude-opus-4-8", "claude-*", "claude-opus-*", "c*"])
def test_names_under_patterns_are_names_for_fallbacks_clients_and_targets(loaded: Load, model: str, asked: str) -> None:
    text = (
        f'providers:\n  groq: {{ api_key: x }}\nmodels:\n  "claude-opus-*": {{ deployments: [groq/x] }}\n  {model}\n'
        f'clients:\n  a: {{ key_sha256: {HASH}, models: ["{asked}"] }}\n'
        "slo:\n  fast: { model: claude-opus-4-8, ttft_ms: 900 }\n"
    )

    assert loaded(text).clients["a"].models == (asked,)


def test_a_client_or_a_target_of_no_model_is_still_refused(problems: Problems) -> None:
    text = (
        'providers:\n  groq: { api_key: x }\nmodels:\n  "claude-*": { deployments: [groq/x] }\n'
        f'clients:\n  a: {{ key_sha256: {HASH}, models: ["gpt-*", gpt-6] }}\n'
        'slo:\n  fast: { model: "claude-*", ttft_ms: 900 }\n'
    )

    assert [each.partition(": ")[2].partition(":")[0] for each in problems(text)] == [
        "clients.a.models[0]",
        "clients.a.models[1]",
        "slo.fast.model",
    ]
