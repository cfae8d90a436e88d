"""holeshot providers, asking them over real sockets."""

import json
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest
from typer.testing import Result

Holeshot = Callable[..., Result]
CONFIG = ("--config", "gateway.yaml")


def configure(text: str) -> None:
    Path("gateway.yaml").write_text(text)


def told(result: Result) -> dict[str, dict[str, Any]]:
    return {row["provider"]: row for row in json.loads(result.stdout)["providers"]}


def test_a_provider_that_answers_is_told_with_its_models_and_what_is_left_of_its_limits(
    holeshot: Holeshot, site: Any
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "a"}, {"id": "b"}]}
    site.headers = {"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "25"}
    configure(
        f"providers: {{ mine: {{ base_url: '{site.url}/v1', api_keys: [sk-1, sk-2] }} }}\n"
        "models: { m: { deployments: [mine/a, mine/b] } }\n"
    )

    result = holeshot("providers", *CONFIG, "--json")

    row = told(result)["mine"]
    assert result.exit_code == 0
    assert (row["state"], row["models"], row["headroom"], row["keys"], row["deployments"]) == (
        "reachable",
        2,
        0.25,
        2,
        2,
    )
    assert (row["host"], row["configured"]) == (site.url.removeprefix("http://"), True)
    assert row["latency_ms"] > 0


def test_the_table_shows_the_same_and_never_a_key(holeshot: Holeshot, site: Any) -> None:
    site.answers["/v1/models"] = {"data": [{"id": "a"}]}
    site.headers = {"x-ratelimit-limit-requests": "100", "x-ratelimit-remaining-requests": "25"}
    configure(f"providers: {{ mine: {{ base_url: '{site.url}/v1', api_key: sk-secret }} }}\n")

    output = holeshot("providers", *CONFIG).output

    for words in ("mine", "1 model in", "25%", "chat"):
        assert words in output
    assert "sk-secret" not in output


def test_a_user_without_a_name_and_a_home_sees_the_same(
    holeshot: Holeshot, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(uid: int) -> Never:
        raise KeyError(uid)  # as of a container's user

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "a"}]}
    configure(f"providers: {{ mine: {{ base_url: '{site.url}/v1' }} }}\n")
    result = holeshot("providers", *CONFIG)
    assert result.exit_code == 0, result.output
    assert "mine" in result.output


def test_a_password_in_a_url_is_not_shown(holeshot: Holeshot) -> None:
    configure("providers: { mine: { base_url: 'https://me:s3cret@host.test/v1' } }\n")

    output = holeshot("providers", *CONFIG, "--offline").output

    assert "host.test" in output
    assert "s3cret" not in output


def test_a_refused_key_is_a_failure_that_is_explained(holeshot: Holeshot, site: Any) -> None:
    site.key = "sk-another"
    configure(f"providers: {{ mine: {{ base_url: '{site.url}/v1', api_key: sk-secret }} }}\n")

    result = holeshot("providers", *CONFIG)

    assert result.exit_code == 1
    assert "unauthorised" in result.output
    assert "note: mine: " in result.output


def test_settings_that_contradict_each_other_are_explained(holeshot: Holeshot) -> None:
    configure("providers: { mine: { base_url: 'https://me:pw@host.test/v1', api_key: k } }\n")

    result = holeshot("providers", *CONFIG)

    assert result.exit_code == 1
    assert "keep one of the two" in result.output


def test_each_of_several_keys_is_tried_and_the_refused_one_is_named_by_its_number(
    holeshot: Holeshot, site: Any
) -> None:
    site.answers["/v1/models"] = {"data": [{"id": "a"}]}
    site.key = "sk-1"
    configure(f"providers: {{ mine: {{ base_url: '{site.url}/v1', api_keys: [sk-1, sk-2] }} }}\n")

    result = holeshot("providers", *CONFIG, "--json")

    row = told(result)["mine"]
    assert (result.exit_code, row["state"], row["message"], row["models"]) == (1, "unauthorised", "key 2 of 2: no", 1)
    site.key = None
    assert told(holeshot("providers", *CONFIG, "--json"))["mine"]["state"] == "reachable"


def test_a_provider_without_a_list_of_models_is_no_failure(holeshot: Holeshot, site: Any) -> None:
    site.posts["/v1/chat/completions"] = 422
    configure(f"providers: {{ mine: {{ base_url: '{site.url}/v1' }} }}\n")

    result = holeshot("providers", *CONFIG, "--json")

    assert (result.exit_code, told(result)["mine"]["state"]) == (0, "no model list")


def test_offline_nobody_is_asked(holeshot: Holeshot) -> None:
    configure("providers: { mine: { base_url: 'http://127.0.0.1:1/v1' } }\n")

    result = holeshot("providers", *CONFIG, "--offline", "--json")

    row = told(result)["mine"]
    assert (result.exit_code, row["state"], row["works"], row["models"]) == (0, None, None, None)


def test_a_vendor_only_the_environment_has_a_key_of_is_shown_as_such(holeshot: Holeshot) -> None:
    configure("providers: { mine: { base_url: 'http://127.0.0.1:1/v1' } }\n")

    result = holeshot("providers", *CONFIG, "--offline", "--json", MISTRAL_API_KEY="m-secret")

    row = told(result)["mistral"]
    assert (row["configured"], row["keys"], row["host"], row["title"]) == (False, 1, "api.mistral.ai", "Mistral AI")
    assert "m-secret" not in result.output
    assert "not in the configuration" in holeshot("providers", *CONFIG, "--offline", MISTRAL_API_KEY="m-secret").output


def test_a_vendor_under_another_name_is_not_shown_twice(holeshot: Holeshot) -> None:
    configure("providers: { mistral-eu: { preset: mistral, api_key: m } }\n")

    assert list(told(holeshot("providers", *CONFIG, "--offline", "--json", MISTRAL_API_KEY="m"))) == ["mistral-eu"]


def test_credentials_kept_elsewhere_are_looked_for(holeshot: Holeshot, tmp_path: Path) -> None:
    configure("providers: { bedrock: {}, vertex_ai: {} }\n")
    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)
    none = {"HOME": str(home), "AWS_PROFILE": "", "AWS_ACCESS_KEY_ID": "", "GOOGLE_APPLICATION_CREDENTIALS": ""}

    without = told(holeshot("providers", *CONFIG, "--offline", "--json", **none))
    assert (without["bedrock"]["credentials"], without["vertex_ai"]["credentials"]) == (False, False)

    (home / ".aws" / "credentials").write_text("[default]\n")
    found = told(
        holeshot("providers", *CONFIG, "--offline", "--json", **none | {"GOOGLE_APPLICATION_CREDENTIALS": "/x.json"})
    )
    assert (found["bedrock"]["credentials"], found["vertex_ai"]["credentials"]) == (True, True)


def test_with_nothing_configured_it_says_what_to_do(holeshot: Holeshot) -> None:
    result = holeshot("providers")

    assert result.exit_code == 0
    assert "set a key such as GROQ_API_KEY" in result.output
