"""import: the verb for who comes from another gateway."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from gateway.settings import load

Holeshot = Callable[..., Result]

CONFIG = """
model_list:
  - { model_name: llama, litellm_params: { model: groq/llama-3.3-70b-versatile, api_key: os.environ/GROQ_API_KEY } }
  - { model_name: llama, litellm_params: { model: cerebras/llama-3.3-70b, api_key: csk-clear, rpm: 3 } }
"""


@pytest.fixture(autouse=True)
def _there_is_a_configuration(holeshot: Holeshot) -> None:
    Path("config.yaml").write_text(CONFIG)


def test_what_is_imported_is_what_check_accepts(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", GROQ_API_KEY="g", CEREBRAS_API_KEY="c")

    assert result.exit_code == 0, result.output
    assert "wrote config/gateway.yaml: 1 model at 2 providers, 2 remarks" in result.stdout
    assert "config.yaml:4: model_list[1].litellm_params.api_key: a secret in clear text" in result.stderr
    assert "before `holeshot serve`" not in result.stderr
    assert holeshot("check", GROQ_API_KEY="g", CEREBRAS_API_KEY="c").exit_code == 0


def test_what_is_still_missing_is_said(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", GROQ_API_KEY="g")

    assert result.exit_code == 0
    assert "providers.cerebras.api_key: CEREBRAS_API_KEY is not set" in result.stderr


def test_nothing_is_overwritten_unless_forced(holeshot: Holeshot) -> None:
    Path("mine.yaml").write_text("port: 1\n")

    refused = holeshot("import", "litellm", "config.yaml", "-o", "mine.yaml")

    assert refused.exit_code == 1
    assert "mine.yaml already exists; --force overwrites it" in refused.stderr
    assert Path("mine.yaml").read_text() == "port: 1\n"
    assert holeshot("import", "litellm", "config.yaml", "-o", "mine.yaml", "--force").exit_code == 0
    assert "llama" in Path("mine.yaml").read_text()


def test_a_dash_is_standard_output(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", "-o", "-")

    assert result.exit_code == 0
    assert result.stdout.startswith("# Holeshot's configuration, made from config.yaml")
    assert "csk-clear" not in result.output
    assert not Path("config").exists()


def test_machines_are_told_everything_in_one_object(holeshot: Holeshot) -> None:
    result = holeshot("import", "litellm", "config.yaml", "--json", GROQ_API_KEY="g")
    told = json.loads(result.stdout)

    assert (told["config"], told["text"]) == ("config/gateway.yaml", None)
    assert (told["providers"], told["models"]) == (["groq", "cerebras"], ["llama"])
    assert told["variables"] == ["GROQ_API_KEY", "CEREBRAS_API_KEY"]
    assert {(note["file"], note["line"]) for note in told["notes"]} == {("config.yaml", 4)}
    assert [problem["line"] for problem in told["problems"]] == [9]


@pytest.mark.parametrize(("content", "words"), [(None, "cannot be read"), ("model_list: [", "invalid YAML")])
def test_a_file_that_cannot_be_used_is_said_with_1(holeshot: Holeshot, content: str | None, words: str) -> None:
    if content is not None:
        Path("other.yaml").write_text(content)

    result = holeshot("import", "litellm", "other.yaml")

    assert result.exit_code == 1
    assert words in result.stderr
    assert not Path("config").exists()


def test_the_verb_has_an_example(holeshot: Holeshot) -> None:
    assert "litellm" in holeshot("import", "--help").output
    assert "Example:" in holeshot("import", "litellm", "--help").output


# What LiteLLM has in its database, as its API answers.

DIGEST = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"
TEAMS = [
    {"team_id": "t-1", "team_alias": "research", "rpm_limit": 600, "max_budget": 50.0, "budget_duration": "30d",
     "models": ["llama"], "spend": 3.5, "blocked": False},
    {"team_id": "t-2", "team_alias": None, "max_budget": 9, "budget_duration": None, "models": []},
    {"team_id": "t-3", "team_alias": None, "max_budget": 9, "budget_duration": "1m", "models": []},
    {"team_id": "t-4", "team_alias": None, "max_budget": 9, "budget_duration": "1mo", "models": []},
]  # fmt: skip
KEYS = {
    "keys": [
        {"token": DIGEST, "key_alias": "nightly", "team_id": "t-1", "user_id": "u-1", "tpm_limit": 9000, "models": []},
        {"token": DIGEST[::-1], "key_alias": None, "user_id": "u-1", "team_id": None, "models": ["all-proxy-models"],
         "expires": "2031-01-01T00:00:00Z"},
        {"token": "sk-in-clear-text", "key_alias": "old", "models": []},
        {"token": "a" * 64, "key_alias": "stopped", "models": [], "blocked": True},
        {"token": "b" * 64, "key_alias": "elsewhere", "models": ["gpt-none"]},
        {"token": "c" * 64, "key_alias": "orphan", "team_id": "t-9", "models": []},
    ],
    "total_count": 6,
}  # fmt: skip
USERS = {
    "users": [
        {"user_id": "u-1", "user_email": "ann@example.com", "user_role": "internal_user", "max_parallel_requests": 4,
         "max_budget": 2, "budget_duration": "1d", "teams": ["t-1"]},
        {"user_id": "u-2", "user_email": None, "user_role": "proxy_admin", "teams": []},
    ]
}  # fmt: skip
CUSTOMERS = [
    {"user_id": "acme", "blocked": False, "litellm_budget_table": {"max_budget": 1.5, "budget_duration": "24h"}},
    {"user_id": "barred", "blocked": True, "litellm_budget_table": None},
]


def test_keys_teams_and_users_of_its_database_are_imported(holeshot: Holeshot) -> None:
    named: list[str] = []
    for name, told in (("keys", KEYS), ("teams", TEAMS), ("users", USERS), ("customers", CUSTOMERS)):
        Path(f"{name}.json").write_text(json.dumps(told))
        named += ["--accounts", f"{name}.json"]
    environ = {"GROQ_API_KEY": "g", "CEREBRAS_API_KEY": "c", "PAGE_SIGNING_KEY": "0123456789abcdef" * 4}

    result = holeshot("import", "litellm", "config.yaml", *named, **environ)

    assert result.exit_code == 0, result.output
    assert "before `holeshot serve`" not in result.stderr, result.stderr
    made = load(Path("config/gateway.yaml"), environ)
    assert {name: team.by_name for name, team in made.teams.items()} == {
        "research": {"rpm": 600, "usd_per_month": 50.0},
        "t-2": {"usd_total": 9},
        "t-3": {},
        "t-4": {"usd_per_month": 9},
        "ann@example.com": {"max_parallel": 4, "usd_per_day": 2},
    }
    nightly, other = made.clients["nightly"], made.clients[f"key-{DIGEST[::-1][:8]}"]
    assert (nightly.key_sha256, nightly.team, nightly.models) == ((DIGEST,), "research", ("llama",))
    assert nightly.by_name == {"tpm": 9000}
    assert (other.team, other.models, str(other.expires)[:10]) == ("ann@example.com", None, "2031-01-01")
    assert set(made.clients) == {"nightly", f"key-{DIGEST[::-1][:8]}"}
    assert made.end_users is not None
    assert {name: limits.by_name for name, limits in made.end_users.named.items()} == {"acme": {"usd_per_day": 1.5}}
    said = " ".join(result.stderr.split())
    for words in (
        "team 't-3' has a budget of 1m",  # a minute
        "the key 'old' is not a SHA-256: left out",
        "the key 'stopped' is blocked: left out",
        "the key 'elsewhere' may use models that this configuration does not have: gpt-none",
        "the key 'orphan': its team is in none of the files: left out",
        "customer 'barred' is blocked",
        "have spent is not carried over",
    ):
        assert words in said, words
    assert "sk-in-clear-text" not in result.output + Path("config/gateway.yaml").read_text()


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ("[", "accounts.json: cannot be read: is not JSON"),
        ('{"error": "no"}', "is no list of keys, teams, users or customers"),
        (f'{{"keys": ["{DIGEST}"]}}', "return_full_object=true"),
        ("[1]", "is no key, team, user or customer"),
    ],
)
def test_what_is_no_answer_of_its_api_is_said(holeshot: Holeshot, told: str, words: str) -> None:
    Path("accounts.json").write_text(told)

    result = holeshot("import", "litellm", "config.yaml", "--accounts", "accounts.json", GROQ_API_KEY="g")

    assert words in " ".join(result.stderr.split())


def test_accounts_that_are_not_utf_8_are_named(holeshot: Holeshot, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(b'[{"token": "\xff"}]')
    result = holeshot("import", "litellm", "config.yaml", "--accounts", "keys.json", "-o", "-")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "keys.json: cannot be read: is not UTF-8 text" in result.stderr


def test_a_file_that_is_not_litellms_is_refused(holeshot: Holeshot) -> None:
    Path("mine.yaml").write_text("port: 4000\nmodels: {}\n")
    result = holeshot("import", "litellm", "mine.yaml")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "mine.yaml: is not a LiteLLM configuration: it has none of credential_list, " in result.stderr
    assert not Path("config").exists()
