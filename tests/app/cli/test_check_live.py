"""holeshot check --live, asking providers over real sockets."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import Result

Holeshot = Callable[..., Result]


def configure(url: str, key: str = "sk-secret") -> None:
    provider = f"{{ base_url: '{url}/v1', api_key: {key} }}"
    Path("gateway.yaml").write_text(
        f"providers: {{ mine: {provider} }}\nmodels: {{ m: {{ deployments: [mine/here, mine/gone] }} }}\n"
    )


def test_a_provider_that_answers_is_reachable_and_a_model_it_lacks_is_named(holeshot: Holeshot, site: Any) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}]}
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], told["live"]["mine"]["state"]) == (0, True, "reachable")
    assert told["live"]["mine"]["models"] == 1
    assert "mine does not list 'gone' (model 'm')" in told["warnings"]


def test_a_key_that_is_refused_is_a_failure_and_not_shown(holeshot: Holeshot, site: Any) -> None:
    site.key = "sk-another"
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live")

    assert result.exit_code == 1
    assert "unauthorised" in result.output
    assert "sk-secret" not in result.output


def test_a_provider_without_a_model_list_still_works(holeshot: Holeshot, site: Any) -> None:
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["live"]["mine"]["state"] == "no model list"


def test_a_provider_that_is_not_there_is_a_failure(holeshot: Holeshot) -> None:
    configure("http://127.0.0.1:1")

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["live"]["mine"]["state"] == "connect_error"
