"""holeshot check --live, asking providers over real sockets."""

import itertools
import json
import socket
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

URLS = ("database_url", "reports_database_url")
Holeshot = Callable[..., Result]


def configure(url: str, key: str = "sk-secret", *, path: str = "/v1") -> None:
    provider = f"{{ base_url: '{url}{path}', api_key: {key} }}"
    Path("gateway.yaml").write_text(
        f"providers: {{ mine: {provider} }}\nmodels: {{ m: {{ deployments: [mine/here, mine/gone] }} }}\n"
    )


def test_a_provider_that_answers_is_reachable_and_one_of_its_models_is_asked_for_a_token(
    holeshot: Holeshot, site: Any
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], told["live"]["mine"]["state"]) == (0, True, "reachable")
    assert told["live"]["mine"]["models"] == 2
    assert site.asked == ["/v1/models", *["POST /v1/chat/completions"] * 3]  # the others: which roles they take


def test_a_replica_for_reports_that_does_not_answer_is_a_failure_told_without_its_password(
    holeshot: Holeshot, site: Any
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    configure(site.url)
    with socket.socket() as taken:  # bound, so that nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        urls = "".join(f"{name}: postgresql://me:hush@127.0.0.1:{taken.getsockname()[1]}/x\n" for name in URLS)
        Path("gateway.yaml").write_text(urls + Path("gateway.yaml").read_text())

        result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"]) == (1, False)
    assert any(note.startswith("reports_database_url: the database postgresql") for note in told["warnings"])
    assert "hush" not in result.output


def test_a_ledger_that_cannot_be_used_is_a_failure(holeshot: Holeshot, site: Any) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    configure(site.url)
    with socket.socket() as taken:  # bound, so that nobody else can listen there
        taken.bind(("127.0.0.1", 0))
        away = f"database_url: postgresql://me:hush@127.0.0.1:{taken.getsockname()[1]}/x\n"
        without = Path("gateway.yaml").read_text()
        Path("gateway.yaml").write_text(away + without)
        result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")
    told = json.loads(result.stdout)
    [warning] = [each for each in told["warnings"] if each.startswith("database_url: ")]
    assert (result.exit_code, told["ok"], "; start Postgres there" in warning) == (1, False, True)
    assert "hush" not in result.output

    Path("gateway.yaml").write_text("database_url: sqlite:///ledger.db\n" + without)
    tried = ("check", "--config", "gateway.yaml", "--live")
    assert (holeshot(*tried).exit_code, Path("ledger.db").exists()) == (0, False)  # `serve` makes the file
    Path("ledger.db").touch()
    assert holeshot(*tried).exit_code == 0  # and migrates it
    assert holeshot("migrate", "--config", "gateway.yaml").exit_code == 0
    assert holeshot(*tried).exit_code == 0
    with closing(sqlite3.connect("ledger.db")) as ledger, ledger:
        ledger.execute("update holeshot_version set version_num = '9999'")
        ledger.execute("update ledger_readers set oldest = '9999'")
    result = holeshot(*tried)
    assert result.exit_code == 1
    assert "database_url: the ledger's schema is 9999, newer than this version's" in " ".join(result.output.split())


def test_a_server_that_leaves_out_finish_reasons_is_noted_unless_the_file_says_so(
    holeshot: Holeshot, site: Any
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    site.unlisted.add("here")
    site.finish = b""
    configure(site.url)

    noted = json.loads(holeshot("check", "--config", "gateway.yaml", "--live", "--json").stdout)
    Path("gateway.yaml").write_text(
        Path("gateway.yaml").read_text().replace("api_key", "omits_finish_reason: true, api_key")
    )
    silent = json.loads(holeshot("check", "--config", "gateway.yaml", "--live", "--json").stdout)

    note = "mine ends its streams with [DONE] and no finish reason"
    assert [any(each.startswith(note) for each in told["warnings"]) for told in (noted, silent)] == [True, False]


def alternates(roles: list[str]) -> bool:
    turns = [role for role in roles if role != "system"]
    return all(first != second or first == "tool" for first, second in itertools.pairwise(turns))


@pytest.mark.parametrize(
    ("takes", "columns"),
    [
        (lambda _: True, None),
        (lambda roles: not {"system", "developer"} & {*roles[1:]}, "one_system: true"),
        (alternates, "alternating: true"),
        (lambda roles: ("tool", "user") not in itertools.pairwise(roles), "user_after_tool: false"),
        (
            lambda roles: roles in (["user"], ["system", "user", "assistant", "user"], ["user", "assistant", "user"]),
            "one_system: true, alternating: true",
        ),
    ],
    ids=["all", "system", "alternating", "tool", "no tools"],
)
def test_a_server_that_needs_a_stricter_order_of_roles_is_noted_with_the_setting_that_says_so(
    holeshot: Holeshot, site: Any, takes: Callable[[list[str]], bool], columns: str | None
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    site.unlisted.add("here")
    site.takes = takes
    configure(site.url)

    def notes() -> list[str]:
        told = json.loads(holeshot("check", "--config", "gateway.yaml", "--live", "--json").stdout)
        assert told["ok"]
        return [each for each in told["warnings"] if "lists of texts" in each]

    if columns is None:
        assert notes() == []
        return
    [note] = notes()
    advice = f"history: {{ {columns} }}"
    assert (note.startswith("mine/here refuses roles or lists of texts"), note.endswith(advice)) == (True, True)
    Path("gateway.yaml").write_text(Path("gateway.yaml").read_text().replace("api_key", f"{advice}, api_key"))
    assert notes() == []


@pytest.mark.parametrize("field", ["reasoning_effort", "stream_options"])
def test_what_a_model_refuses_of_a_usual_request_is_noted(holeshot: Holeshot, site: Any, field: str) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    site.unlisted.add("here")
    site.refuses = field
    configure(site.url)

    told = json.loads(holeshot("check", "--config", "gateway.yaml", "--live", "--json").stdout)

    [note] = [each for each in told["warnings"] if "x-holeshot-dropped" in each]
    assert note.startswith(f"mine/here refuses {field}: ")


def test_a_model_that_is_neither_listed_nor_answers_is_a_failure_with_the_nearest_name(
    holeshot: Holeshot, site: Any
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone-1"}]}
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    (note,) = [note for note in told["warnings"] if "does not list" in note]
    assert (result.exit_code, told["ok"], told["live"]["mine"]["state"]) == (1, False, "reachable")
    assert note.startswith("mine does not list 'gone' (model 'm'), and refuses a request for it: ")
    assert note.endswith("; did you mean 'gone-1'?")
    # After the first: how its streams end, and which roles both models take.
    assert site.asked == ["/v1/models", *["POST /v1/chat/completions"] * 4]


def test_an_alias_that_answers_although_it_is_not_listed_is_fine(holeshot: Holeshot, site: Any) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}]}
    site.unlisted.add("gone")
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"]) == (0, True)
    assert "mine does not list 'gone' (model 'm'), but answers a request for it" in told["warnings"]


@pytest.mark.parametrize(
    ("keys", "source"),
    [
        ("api_key: sk-secret", "gateway.yaml:1: providers.mine.api_key"),
        ("api_key: '${MY_KEY}'", "MY_KEY (gateway.yaml:1: providers.mine.api_key)"),
        ("api_key: '${MY_OTHER:-sk-secret}'", "MY_OTHER (gateway.yaml:1: providers.mine.api_key)"),
        ("api_key: 'file:./key'", "file:./key (gateway.yaml:1: providers.mine.api_key)"),
        ("api_keys: [sk-another, '${MY_KEY}']", "MY_KEY (gateway.yaml:1: providers.mine.api_keys[1])"),
        ("api_keys: { a: sk-another, b: '${MY_KEY}' }", "MY_KEY (gateway.yaml:1: providers.mine.api_keys.b)"),
    ],
)
def test_a_key_that_is_refused_is_a_failure_that_says_where_the_key_comes_from_and_does_not_show_it(
    keys: str, source: str, holeshot: Holeshot, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.key = "sk-another"
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}, {"id": "gone"}]}
    configure(site.url)
    monkeypatch.setenv("MY_KEY", "sk-secret")
    Path("key").write_text("sk-secret\n")
    Path("gateway.yaml").write_text(Path("gateway.yaml").read_text().replace("api_key: sk-secret", keys))

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["live"]["mine"]["state"]) == (1, "unauthorised")
    assert any(each.endswith(f"; the refused key comes from {source}") for each in told["warnings"]), told["warnings"]
    assert "sk-secret" not in result.output


def test_the_variable_that_a_provider_without_a_key_in_the_file_takes_its_key_from_is_told(
    holeshot: Holeshot, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.key = "sk-another"
    configure(site.url)
    Path("gateway.yaml").write_text(Path("gateway.yaml").read_text().replace(", api_key: sk-secret", ""))
    monkeypatch.setenv("HOLESHOT_PROVIDERS__MINE__API_KEY", "sk-secret")

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    warnings = json.loads(result.stdout)["warnings"]
    assert any(each.endswith("comes from HOLESHOT_PROVIDERS__MINE__API_KEY") for each in warnings), warnings
    assert "sk-secret" not in result.output


def test_a_provider_without_a_model_list_still_works(holeshot: Holeshot, site: Any) -> None:
    site.posts["/v1/chat/completions"] = 400
    configure(site.url)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["live"]["mine"]["state"] == "no model list"


@pytest.mark.parametrize("path", ["", "/", "/api", "/v2"])
@pytest.mark.parametrize("lists", [True, False])
def test_a_base_url_that_is_wrong_is_a_failure_with_the_right_one(
    holeshot: Holeshot, site: Any, path: str, *, lists: bool
) -> None:
    if lists:
        site.answers["/v1/models"] = {"object": "list", "data": [{"id": "here"}]}
    site.posts["/v1/chat/completions"] = 400
    configure(site.url, path=path)

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    live = json.loads(result.stdout)["live"]["mine"]
    assert (result.exit_code, live["state"]) == (1, "wrong base_url")
    assert live["message"] == (
        f"{site.url}{path.rstrip('/')}/models answers 404 and there is no chat/completions beside it;"
        f" set base_url: {site.url}/v1"
    )


def test_an_address_below_which_there_is_no_api_at_all_is_a_failure(holeshot: Holeshot, site: Any) -> None:
    configure(site.url, path="/somewhere/v1")

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    live = json.loads(result.stdout)["live"]["mine"]
    assert (result.exit_code, live["state"]) == (1, "wrong base_url")
    assert f"{site.url}/somewhere/v1/models answers 404" in live["message"]


@pytest.mark.parametrize("api", ["chat/completions", "completions", "responses", "messages", "embeddings/"])
def test_a_base_url_with_the_path_of_one_api_is_refused_without_asking(holeshot: Holeshot, site: Any, api: str) -> None:
    configure(site.url, path=f"/v1/{api}")

    result = holeshot("check", "--config", "gateway.yaml")

    assert result.exit_code == 1
    assert f"which the gateway adds itself: write {site.url}/v1\n" in result.output
    assert site.asked == []


def test_a_provider_that_is_not_there_is_a_failure(holeshot: Holeshot) -> None:
    configure("http://127.0.0.1:1")

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout)["live"]["mine"]["state"] == "connect_error"


@pytest.mark.parametrize("refused", [{"first": 429}, {"first": 401}, {"first": 401, "second": 429}], ids=str)
def test_a_model_of_embeddings_answers_if_one_of_its_keys_is_taken(
    holeshot: Holeshot, site: Any, refused: dict[str, int]
) -> None:
    site.answers["/v1/models"] = {"object": "list", "data": [{"id": "other"}]}
    site.answers["POST /v1/embeddings"] = {"object": "list", "data": [{"index": 0, "embedding": [0.5]}]}
    site.posts["/v1/embeddings"], site.refused = 200, refused
    provider = f"{{ base_url: '{site.url}/v1', api_keys: [first, second, third], apis: [embeddings] }}"
    Path("gateway.yaml").write_text(
        f"providers: {{ mine: {provider} }}\nmodels: {{ m: {{ deployments: [mine/v] }} }}\n"
    )

    result = holeshot("check", "--config", "gateway.yaml", "--live", "--json")

    told = json.loads(result.stdout)
    assert (result.exit_code, told["ok"], told["live"]["mine"]["state"]) == (0, True, "reachable"), told
    assert site.asked.count("POST /v1/embeddings") == 1 + len(refused)
