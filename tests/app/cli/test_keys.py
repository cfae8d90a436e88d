"""holeshot keys on a real SQLite file: what the verbs make and change is what a running gateway reads."""

import hashlib
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from gateway.settings import ClientRole, load

Holeshot = Callable[..., Result]

SHA = "a" * 64
CONFIG: dict[str, Any] = {
    "database_url": "sqlite:///ledger.db",
    "keys": "database",
    "providers": {"mine": {"base_url": "http://127.0.0.1:1/v1", "api_key": "${NOT_SET_HERE}"}},
    "models": {"llama": {"deployments": ["mine/x"]}},
    "clients": {"filed": {"key_sha256": "${NOR_THIS}", "role": "viewer"}},
}


@pytest.fixture
def keys(holeshot: Holeshot, migrated_file: Path) -> Holeshot:
    """Runs ``holeshot keys …`` for an installation with keys in its database, and none of its secrets."""
    Path("gateway.yaml").write_text(yaml.safe_dump(CONFIG))
    shutil.copy(migrated_file, "ledger.db")

    def run(*arguments: str) -> Result:
        return holeshot("keys", *arguments, "-c", "gateway.yaml")

    return run


@pytest.fixture
def filed(holeshot: Holeshot) -> Holeshot:
    """The same for an installation with keys in the file."""
    Path("gateway.yaml").write_text(yaml.safe_dump({**CONFIG, "keys": "file"}))

    def run(*arguments: str) -> Result:
        return holeshot("keys", *arguments, "-c", "gateway.yaml")

    return run


def made(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    described: dict[str, Any] = json.loads(result.stdout)
    return described


def listed(keys: Holeshot, *options: str) -> dict[str, Any]:
    clients = made(keys("list", "--json", *options))["clients"]
    return {client["name"]: client for client in clients}


def rows(holeshot: Holeshot, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(holeshot("sql", query, "--json", "-c", "gateway.yaml").stdout)
    return found


def test_a_new_key_is_printed_once_and_stored_hashed(keys: Holeshot, holeshot: Holeshot) -> None:
    result = keys("new", "app", "--models", "llama", "--expires", "2030-01-31", "--set", "require.zdr=true")

    assert result.exit_code == 0, result.output
    [key] = re.findall(r"^  (hs-\S{43})$", result.stdout, re.MULTILINE)
    assert "clients:" not in result.stdout
    app = listed(keys)["app"]
    assert (app["source"], app["models"], app["require"]) == ("database", ["llama"], {"zdr": True})
    assert app["expires"] == "2030-01-31T00:00:00Z"
    [row] = rows(holeshot, "select * from client_keys")
    assert (row["sha256"], row["hint"]) == (hashlib.sha256(key.encode()).hexdigest(), key[-4:])
    [change] = rows(holeshot, "select who, action, name from key_changes")
    assert (change["action"], change["name"]) == ("created", "app")
    assert "@" in change["who"]
    assert key not in keys("list").output + keys("limits", "app").output


def test_a_file_with_a_missing_secret_is_no_obstacle(keys: Holeshot) -> None:
    assert keys("new", "app").exit_code == 0
    assert listed(keys).keys() == {"filed", "app"}


def test_rotating_with_and_without_grace(keys: Holeshot) -> None:
    first = made(keys("new", "app", "--json"))["key"]
    rotated = made(keys("rotate", "app", "--grace", "12h", "--json"))
    assert rotated["key"] != first
    assert [key["state"] for key in rotated["keys"]] == ["retiring", "active"]

    result = keys("rotate", "app")
    assert result.stdout.startswith("The new key of app, shown only once:\n\n  hs-")
    assert "The old keys have ended" in result.stdout
    assert [key["state"] for key in listed(keys)["app"]["keys"]] == ["active"]
    assert [key["state"] for key in listed(keys, "--all")["app"]["keys"]] == ["revoked", "revoked", "active"]


def test_revoking_all_keys_or_one(keys: Holeshot) -> None:
    first = made(keys("new", "app", "--json"))["key"]
    second = made(keys("rotate", "app", "--grace", "1h", "--json"))["key"]

    assert keys("revoke", "app", f"--key={first[-4:]}").stdout.startswith(f"1 key of app revoked: …{first[-4:]}.")
    assert made(keys("revoke", "app", "--json"))["revoked"][0]["hint"] == second[-4:]
    assert "app" not in listed(keys)
    assert keys("revoke", "app").exit_code == 1


@pytest.mark.parametrize("verb", ["new", "limits"])
def test_an_unknown_setting_without_a_value_is_refused(keys: Holeshot, verb: str) -> None:
    if verb == "limits":
        keys("new", "app")
    result = keys(verb, "app", "--set", "rmp=")

    assert result.exit_code == 2
    assert "rmp: unknown key; did you mean 'rpm'?" in result.stderr


def test_limits_shows_and_changes(keys: Holeshot) -> None:
    keys("new", "app", "--role", "admin", "--set", "max_width=3")
    assert "role: admin\n" in keys("limits", "app").stdout
    changed = made(keys("limits", "app", "--role", "client", "--set", "max_width=", "--set", "adhoc=true", "--json"))
    assert (changed["role"], changed["adhoc"]) == ("client", True)
    assert "max_width" not in changed

    assert made(keys("limits", "app", "--models", "llama", "--json"))["models"] == ["llama"]
    assert "models" not in made(keys("limits", "app", "--models", "all", "--json"))
    assert "require: {" in keys("limits", "app", "--set", "require={regions: [eu]}").stdout


@pytest.mark.parametrize(("text", "days"), [("30d", 30), ("2w", 14), ("36h", 1.5)])
def test_an_expiry_may_be_a_time_from_now_on(keys: Holeshot, text: str, days: float) -> None:
    expires = datetime.fromisoformat(made(keys("new", "app", "--expires", text, "--json"))["expires"])

    assert abs(expires - datetime.now(UTC) - timedelta(days=days)) < timedelta(minutes=5)
    assert made(keys("limits", "app", "--expires", "never", "--json"))["expires"] is None


@pytest.mark.parametrize("verb", ["new", "limits"])
@pytest.mark.parametrize(
    ("option", "end"),
    [
        ("--expires", "2020-01-31"),
        ("--expires", "2020-01-31T18:00:00Z"),
        ("--expires", "2020-01-31T18:00:00+02:00"),
        ("--expires", "0d"),
        ("--set", "expires=2020-01-31"),
        ("--set", "expires=2020-01-31T18:00:00Z"),
    ],
)
def test_an_expiry_in_the_past_is_refused(keys: Holeshot, verb: str, option: str, end: str) -> None:
    if verb == "limits":
        made(keys("new", "app", "--json"))
    result = keys(verb, "app", option, end)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "is in the past, now is 2" in result.stderr
    assert listed(keys).get("app", {}).get("expires") is None


def test_in_the_file_an_expiry_in_the_past_is_refused_too(filed: Holeshot) -> None:
    result = filed("new", "app", "--expires", "2020-01-31")

    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize("end", ["2090-01-31T18:00", "2090-01-31 18:00:00", "2090-01-31T18:00:00.5"])
def test_an_instant_without_a_time_zone_is_refused(keys: Holeshot, end: str) -> None:
    result = keys("new", "app", "--expires", end)

    assert (result.exit_code, result.stdout) == (2, "")
    assert f"write {end}Z for UTC" in result.stderr


def test_a_client_that_has_expired_can_be_changed(keys: Holeshot) -> None:
    made(keys("new", "app", "--json"))
    with closing(sqlite3.connect("ledger.db")) as database, database:
        database.execute("update client_keys set expires_at = '2020-01-31 00:00:00'")

    assert made(keys("limits", "app", "--set", "rpm=5", "--json"))["rpm"] == 5


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["new", "a b"], 2, "'a b' is not a valid client name"),
        (["new", "app", "--set", "max_witdh=1"], 2, "max_witdh: unknown key; did you mean 'max_width'?"),
        (["new", "app", "--set", "max_width=9"], 2, "max_width: must be at most 8"),
        (["new", "app", "--set", "max_width"], 2, "write it like --set rpm=60"),
        (["new", "app", "--set", "models=[a"], 2, "is not YAML"),
        (["new", "app", "--set", "expires=2030-02-30"], 2, "--set expires: there is no day 2030-02-30"),
        (["new", "app", "--set", "rpm=060"], 2, "--set rpm: 060 is a number in base 8 to YAML: write it in decimal"),
        (["new", "app", "--set", "models=[012]"], 2, "--set models: 012 is a number in base 8"),
        (["new", "app", "--set", "models=[no]"], 2, "models[0]: must be text; put it in quotes"),
        (["new", "app", "--set", "rpm=on"], 2, "rpm: must be a number, not true or false"),
        (["new", "app", "--set", "require={2026-01-01: on}"], 2, "require.2026-01-01: unknown key"),
        (["new", "app", "--set", "require={? [a] : on}"], 2, "--set require: the value is not YAML"),
        (["new", "app", "--set", "require={zdr: on, zdr: off}"], 2, "is set twice"),
        (["new", "app", "--set", "key=1"], 2, "key: unknown key; did you mean 'key_sha256'?"),
        (["new", "app", "--models", "lama"], 2, "there is no model 'lama'; did you mean 'llama'?"),
        (["new", "app", "--set", "only=[yours]"], 2, "there is no provider 'yours'; known: mine"),
        (["new", "app", "--set", "team=nope"], 2, "there is no team 'nope'; known: none"),
        (["limits", "taken", "--set", "team=nope"], 2, "there is no team 'nope'; known: none"),
        (["new", "app", "--role", "owner"], 2, "role: must be 'client', 'viewer', 'operator' or 'admin'"),
        (["new", "app", "--role", "viewer", "--admin"], 2, "--admin and --role contradict"),
        (["new", "app", "--expires", "soon"], 2, "must be a date or an instant"),
        (["new", "filed"], 1, "the client 'filed' is in the configuration file, which wins"),
        (["new", "taken"], 1, "there is a client 'taken' already"),
        (["revoke", "filed"], 1, "in the configuration file"),
        (["revoke", "nobody"], 1, "no client 'nobody' has a key in the database"),
        (["rotate", "nobody"], 1, "no client 'nobody' has a key in the database"),
        (["rotate", "taken", "--grace", "soon"], 2, "--grace: 'soon' is no duration"),
        (["rotate", "taken", "--grace", "1000w"], 2, "grace_s must be from 0"),
        (["limits", "nobody"], 1, "there is no client 'nobody'"),
        (["limits", "nobody", "--role", "admin"], 1, "no client 'nobody' has a key"),
        (["limits", "taken", "--set", "max_width=0"], 2, "max_width: must be at least"),
    ],
)
def test_what_cannot_be_done_is_one_line(keys: Holeshot, arguments: list[str], code: int, words: str) -> None:
    assert keys("new", "taken").exit_code == 0
    result = keys(*arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert len(result.stderr.splitlines()) == 1
    assert words in result.stderr


def test_a_database_without_a_schema_says_what_to_run(holeshot: Holeshot) -> None:
    Path("gateway.yaml").write_text(yaml.safe_dump(CONFIG))
    result = holeshot("keys", "list", "-c", "gateway.yaml")

    assert result.exit_code == 1
    assert "holeshot migrate" in result.stderr


def test_an_unreachable_database_is_one_line_without_its_password(holeshot: Holeshot) -> None:
    url = "postgresql://me:s3cret@127.0.0.1:1/ledger"
    result = holeshot("keys", "list", HOLESHOT_DATABASE_URL=url, HOLESHOT_KEYS="database")

    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    assert "s3cret" not in result.stderr


def test_an_empty_database_says_how_to_begin(keys: Holeshot) -> None:
    Path("gateway.yaml").write_text(yaml.safe_dump({**CONFIG, "clients": {}}))

    assert keys("list").stderr == "no client has a key yet; make one: holeshot keys new NAME\n"


def test_in_the_file_a_new_key_is_an_entry_to_paste(filed: Holeshot) -> None:
    output = filed(
        "new", "app", "--role", "viewer", "--expires", "2030-01-31", "--set", "require={regions: [eu]}"
    ).stdout

    Path("pasted.yaml").write_text(output[output.index("clients:") :])
    client = load(Path("pasted.yaml"), {}).clients["app"]
    [key] = re.findall(r"^  (hs-\S{43})$", output, re.MULTILINE)
    assert client.key_sha256 == (hashlib.sha256(key.encode()).hexdigest(),)
    assert (client.role, client.require.regions) == (ClientRole.VIEWER, ("eu",))
    assert client.expires == datetime(2030, 1, 31, tzinfo=UTC)
    assert not Path("ledger.db").exists()


def test_in_the_file_clients_are_listed_too(filed: Holeshot) -> None:
    filed_client = listed(filed)["filed"]

    assert (filed_client["source"], filed_client["role"]) == ("file", "viewer")
    assert [key["state"] for key in filed_client["keys"]] == ["active"]
    assert "source: file" in filed("limits", "filed").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rotate", "filed"], "add the SHA-256 of a new key to key_sha256 of 'filed' there"),
        (["revoke", "filed"], "remove 'filed' from `clients:` there"),
        (["limits", "filed", "--role", "admin"], "change the entry of 'filed' there"),
    ],
)
def test_in_the_file_the_other_verbs_say_what_to_do_instead(filed: Holeshot, arguments: list[str], words: str) -> None:
    result = filed(*arguments)

    assert result.exit_code == 1
    assert words in result.stderr
    assert "set `keys: database`" in result.stderr


@pytest.mark.parametrize("verb", ["new", "list", "limits", "rotate", "revoke"])
def test_every_verb_has_an_example(holeshot: Holeshot, verb: str) -> None:
    result = holeshot("keys", verb, "--help")

    assert result.exit_code == 0
    assert f"Example: holeshot keys {verb}" in result.output
