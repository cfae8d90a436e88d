"""The clients of the file: their keys, roles and expiry."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.keys.stored import OWN
from gateway.settings import ClientRole, ClientSettings, Settings

Load = Callable[..., Settings]
Problems = Callable[..., list[str]]

ONE, TWO = "a" * 64, "b" * 64


def client(loaded: Load, fields: str) -> ClientSettings:
    return loaded(f"clients: {{ a: {{ key_sha256: {ONE}, {fields} }} }}").clients["a"]


def test_a_client_has_one_key_or_several(loaded: Load) -> None:
    settings = loaded(f"clients: {{ a: {{ key_sha256: {ONE} }}, b: {{ key_sha256: [{TWO}, {'c' * 64}] }} }}")

    assert settings.clients["a"].key_sha256 == (ONE,)
    assert settings.clients["b"].key_sha256 == (TWO, "c" * 64)


def test_in_a_variable_one_key_is_itself_and_several_are_json(loaded: Load) -> None:
    settings = loaded(None, {"HOLESHOT_CLIENTS__A__KEY_SHA256": ONE, "HOLESHOT_CLIENTS__B__KEY_SHA256": f'["{TWO}"]'})

    assert [each.key_sha256 for each in settings.clients.values()] == [(ONE,), (TWO,)]


@pytest.mark.parametrize(
    ("fields", "role"),
    [
        ("", ClientRole.CLIENT),
        ("admin: true", ClientRole.ADMIN),
        ("admin: false", ClientRole.CLIENT),
        ("role: viewer", ClientRole.VIEWER),
    ],
)
def test_admin_is_the_older_word_for_the_role(loaded: Load, fields: str, role: ClientRole) -> None:
    assert client(loaded, fields).role is role


@pytest.mark.parametrize(
    "fields", ["admin: true, role: viewer", "admin: true, role: client", "admin: false, role: admin"]
)
def test_two_roles_at_once_are_a_contradiction(problems: Problems, fields: str) -> None:
    (problem,) = problems(f"clients:\n  a: {{ key_sha256: {ONE}, {fields} }}\n")

    assert problem.startswith("gateway.yaml:2: clients.a: admin: ")
    assert "contradict: keep only the role" in problem


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("2030-01-31", datetime(2030, 1, 31, tzinfo=UTC)),
        ("'2030-01-31'", datetime(2030, 1, 31, tzinfo=UTC)),
        ("2030-01-31 18:00:00", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        ("2030-01-31T18:00:00Z", datetime(2030, 1, 31, 18, tzinfo=UTC)),
        ("'2030-01-31T18:00:00+02:00'", datetime(2030, 1, 31, 16, tzinfo=UTC)),
    ],
)
def test_an_expiry_is_a_date_or_an_instant_of_utc(loaded: Load, written: str, meant: datetime) -> None:
    assert client(loaded, f"expires: {written}").expires == meant


@pytest.mark.parametrize("written", ["soon", "30", "2030-02-31", "'9999-12-31T23:00:00-05:00'", "[2030-01-31]"])
def test_another_expiry_is_refused_with_examples(problems: Problems, written: str) -> None:
    (problem, *_) = problems(f"clients: {{ a: {{ key_sha256: {ONE}, expires: {written} }} }}")

    assert "2030-02-31" in written or "must be a date or an instant, like 2027-01-31" in problem


@pytest.mark.parametrize(
    ("digests", "words"),
    [
        ("[]", "clients.a.key_sha256: must not be empty"),
        ("hs-secret", "clients.a.key_sha256: must be 64 hexadecimal digits"),
        ("'[hs-secret'", "clients.a.key_sha256: must be 64 hexadecimal digits"),
        (f"[{ONE}, hs-secret]", "clients.a.key_sha256[1]: must be 64 hexadecimal digits"),
        (f"[{ONE}, {ONE}]", "clients.a.key_sha256: has the same key twice: remove one"),
    ],
)
def test_what_is_wrong_with_keys_is_said_without_them(problems: Problems, digests: str, words: str) -> None:
    (problem,) = problems(f"clients:\n  a: {{ key_sha256: {digests} }}\n")

    assert problem.startswith(f"gateway.yaml:2: {words}")
    assert "hs-secret" not in problem


def test_no_two_clients_share_one_of_their_keys(problems: Problems) -> None:
    (problem,) = problems(f"clients:\n  a: {{ key_sha256: {ONE} }}\n  b: {{ key_sha256: [{TWO}, {ONE}] }}\n")

    assert problem == "gateway.yaml:3: clients.b.key_sha256: is also the key of client 'a': give each client its own"


def test_with_keys_in_the_database_others_than_this_machine_may_be_let_in_without_clients(loaded: Load) -> None:
    assert loaded("keys: database\nhost: 0.0.0.0\n").host == "0.0.0.0"


def test_no_setting_is_named_like_something_else_that_is_said_of_a_client() -> None:
    fields: dict[str, Any] = dict(ClientSettings.model_fields)

    assert not OWN & fields.keys()
