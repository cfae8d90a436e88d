"""Settings of clients outside the file: every field of the model, and none other."""

from typing import Any

import pytest

from gateway.core.errors import InvalidRequest
from gateway.keys import as_fields, client_settings
from gateway.keys.stored import stored_fields

EVERYTHING: dict[str, Any] = {
    "role": "admin",
    "expires": "2030-01-31T18:00:00Z",
    "adhoc": True,
    "max_width": 3,
    "profile": "voice",
    "override": False,
    "models": ["m"],
    "only": ["groq"],
    "ignore": ["openai"],
    "require": {"zdr": True, "regions": ["eu"]},
    "rpm": 60,
    "usd_per_day": 5.0,
}


def test_what_is_said_of_a_client_is_what_is_shown_of_it() -> None:
    assert as_fields(client_settings(EVERYTHING)) == EVERYTHING
    assert as_fields(client_settings({})) == {"role": "client", "expires": None}


def test_what_has_a_column_is_not_in_the_json_too() -> None:
    assert stored_fields(EVERYTHING).keys() == EVERYTHING.keys() - {"role", "expires"}


def test_null_is_as_if_it_was_left_out() -> None:
    assert client_settings({"models": None, "max_width": None}) == client_settings({})


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"modles": ["m"]}, "modles", "unknown key; did you mean 'models'?"),
        ({"require": {"zrd": True}}, "require.zrd", "did you mean 'zdr'?"),
        ({"max_width": 9}, "max_width", "must be at most 8"),
        ({"max_width": "wide"}, "max_width", "must be a whole number"),
        ({"rpm": True}, "rpm", "must be a number, not true or false"),
        ({"rpm": 10**30}, "rpm", "must be at most 1"),
        ({"usd_per_day": "inf"}, "usd_per_day", "must be a finite number"),
        ({"usd_per_month": 1e300}, "usd_per_month", "must be at most 1"),
        ({"role": "owner"}, "role", "must be 'client', 'viewer', 'operator' or 'admin'"),
        ({"expires": "soon"}, "expires", "must be a date or an instant, like"),
        ({"models": ["nix"]}, "models[0]", "there is no model 'nix'"),
        ({"team": "platfrom"}, "team", "there is no team 'platfrom'; did you mean 'platform'?"),
        ({"only": ["grok"]}, "only[0]", "there is no provider 'grok'; did you mean 'groq'?"),
        ({"admin": True, "role": "client"}, None, "contradict: keep only the role"),
        ({"key_sha256": "0" * 64}, "key_sha256", "the gateway makes keys itself"),
        ({"require": {"regions": ["e\x00u"]}}, None, "NUL"),
        *(
            ({"limits_zone": zone}, "limits_zone", "must be a time zone of the IANA database")
            for zone in ("localtime", "right/Europe/Berlin", "posix/Europe/Berlin", "Nope/Zone", "/etc/localtime", "")
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_to_write(fields: dict[str, Any], param: str | None, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client_settings(fields, models=["m"], providers=["groq", "openai"], teams=["platform"])

    assert words in caught.value.message
    assert caught.value.param == param


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidRequest, match=r"max_width: must be .*; overide: unknown key"):
        client_settings({"max_width": 0, "overide": True})


def test_a_value_is_not_repeated_as_it_may_be_a_key() -> None:
    with pytest.raises(InvalidRequest) as caught:
        client_settings({"role": "hs-secret", "expires": "hs-secret", "max_width": "hs-secret"})

    assert "hs-secret" not in caught.value.message
