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


def test_no_setting_is_named_like_something_else_that_is_said_of_a_client() -> None:
    fields: dict[str, Any] = dict(ClientSettings.model_fields)

    assert not OWN & fields.keys()
