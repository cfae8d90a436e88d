"""What of a new configuration is taken over while running, and when its file is read."""

from pathlib import Path
from typing import Any

import pytest

from gateway.core.tasks import WatchedFiles
from gateway.server import ConfigurationSource
from gateway.server.reload import (
    LOST_CLIENTS_S,
    NEEDS_RESTART,
    ConfigurationRefusedError,
    Doubts,
    Latest,
    taken_over,
    with_denials,
)
from gateway.settings import References, Settings, load

CLIENT = {"key_sha256": "a" * 64}
PROVIDER = {"base_url": "http://127.0.0.1:1/v1"}


def settings(**fields: Any) -> Settings:
    return Settings(**{"providers": {"alpha": PROVIDER}, "clients": {"me": CLIENT}} | fields)


@pytest.mark.parametrize("fields", [{"clients": {}}, {"clients": None}, {"clients": {}, "providers": {}}])
def test_the_last_client_is_never_dropped(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationRefusedError, match=r"without a key: .* or restart"):
        taken_over(settings(), settings(**fields))


def test_the_last_client_of_the_file_may_go_where_the_database_has_others() -> None:
    assert taken_over(settings(keys="database"), settings(keys="file", clients={})).keys == "database"


def test_keys_move_to_the_database_with_a_restart_only() -> None:
    with pytest.raises(ConfigurationRefusedError, match="without a key"):
        taken_over(settings(), settings(keys="database", clients={}))


def test_the_last_provider_is_never_dropped() -> None:
    with pytest.raises(ConfigurationRefusedError, match="providers"):
        taken_over(settings(), settings(providers={}))


def test_clients_come_and_go_as_long_as_one_is_there() -> None:
    new = settings(clients={"another": {"key_sha256": "b" * 64}})
    assert taken_over(settings(), new).clients == new.clients
    assert taken_over(settings(clients={}), new).clients == new.clients
    assert taken_over(settings(clients={}), settings(clients={})).clients == {}


def test_what_needs_a_restart_stays_what_it_is() -> None:
    running = settings()
    new = taken_over(running, settings(host="127.0.0.2", port=1, replica="another", lame_duck_s=1))
    assert all(getattr(new, name) == getattr(running, name) for name in NEEDS_RESTART)
    assert new.lame_duck_s == 1


def test_a_file_is_read_once_nobody_writes_it_any_more(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("a")
    file = WatchedFiles([path])
    assert [file.have_changed() for _ in range(3)] == [False, True, False]  # it may have changed since it was read
    path.write_text("")  # in place: first emptied,
    assert not file.have_changed()
    path.write_text("ab")  # then written bit by bit
    assert not file.have_changed()
    path.write_text("abc")
    assert [file.have_changed() for _ in range(3)] == [False, True, False]


def test_a_file_that_is_replaced_or_removed_has_changed(tmp_path: Path) -> None:
    path, other = tmp_path / "gateway.yaml", tmp_path / "new"
    path.write_text("a")
    file = WatchedFiles([path])
    assert [file.have_changed() for _ in range(3)] == [False, True, False]
    other.write_text("b")
    other.replace(path)
    assert [file.have_changed() for _ in range(3)] == [False, True, False]
    path.unlink()
    assert [file.have_changed() for _ in range(3)] == [False, True, False]


def test_where_there_is_no_file_nothing_changes() -> None:
    file = WatchedFiles([])
    assert [file.have_changed() for _ in range(3)] == [False, False, False]


def test_a_worker_that_is_started_later_gets_the_clients_that_came_meanwhile_and_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text("a")
    offered = [settings(), settings(clients={})]
    latest = Latest(settings(clients={}), ConfigurationSource(path, lambda: offered.pop(0), References()))
    latest.look()
    latest.look()
    assert latest.settings.clients
    path.write_text("truncated")
    latest.look()
    latest.look()
    assert not offered
    assert latest.settings.clients


def many(count: int) -> dict[str, Any]:
    return {f"c{number}": {"key_sha256": f"{number:064x}"} for number in range(count)}


@pytest.mark.parametrize(("before", "after", "is_held"), [(4, 2, True), (4, 3, False), (3, 1, False), (41, 20, True)])
def test_of_a_file_of_which_half_of_the_clients_are_gone_nothing_is_taken_over_at_once(
    before: int, after: int, *, is_held: bool
) -> None:
    now_s = [0.0]
    doubts = Doubts(lambda: now_s[0])
    running, cut = settings(clients=many(before)), settings(clients=many(after))
    assert doubts.holds(running, cut, is_confirmed=False) is is_held
    now_s[0] = LOST_CLIENTS_S
    assert doubts.is_due() is is_held
    assert not doubts.holds(running, cut, is_confirmed=False)  # as it was read twice
    assert not doubts.is_due()


def test_a_file_that_goes_on_changing_waits_anew_and_one_that_is_asked_for_does_not_wait() -> None:
    now_s = [0.0]
    doubts = Doubts(lambda: now_s[0])
    running = settings(clients=many(10))
    assert doubts.holds(running, settings(clients=many(2)), is_confirmed=False)
    now_s[0] = LOST_CLIENTS_S
    assert doubts.holds(running, settings(clients=many(3)), is_confirmed=False)  # it is still being uploaded
    assert not doubts.is_due()
    assert not doubts.holds(running, settings(clients=many(3)), is_confirmed=True)
    assert not doubts.is_due()
    assert doubts.holds(running, settings(clients=many(3)), is_confirmed=False)
    assert not doubts.holds(running, settings(clients=many(10)), is_confirmed=False)  # whole again
    assert not doubts.is_due()


def test_a_worker_that_is_started_later_has_no_clients_less_than_the_others(tmp_path: Path) -> None:
    path, now_s = tmp_path / "gateway.yaml", [0.0]
    path.write_text("a")
    source = ConfigurationSource(path, lambda: settings(clients=many(2)), References())
    latest = Latest(settings(clients=many(4)), source, lambda: now_s[0])
    latest.read()
    assert len(latest.settings.clients) == 4
    now_s[0] = LOST_CLIENTS_S
    latest.look()
    assert len(latest.settings.clients) == 2
    asked = Latest(settings(clients=many(4)), source, lambda: now_s[0])
    asked.read(is_confirmed=True)
    assert len(asked.settings.clients) == 2


def test_what_is_denied_holds_at_once_also_in_a_file_that_waits() -> None:
    issuer = {"issuer": "https://login.example", "audience": "https://gateway.example", "claim": "sub"}
    running = settings(clients=many(4), issuers={"company": {**issuer, "deny": ["ann"]}})
    new = settings(clients=many(2), issuers={"company": {**issuer, "deny": ["ben"]}})
    held = with_denials(running, new)
    assert held.issuers["company"].deny == ("ann", "ben")
    assert held.clients == running.clients
    assert with_denials(running, settings(clients=many(2))) == running


def test_a_file_whose_reading_fails_in_a_way_that_was_not_foreseen_leaves_what_was_there(tmp_path: Path) -> None:
    path, before = tmp_path / "gateway.yaml", settings()
    path.write_text("a")

    def fail() -> Settings:
        raise RecursionError

    latest = Latest(before, ConfigurationSource(path, fail, References()))
    latest.look()
    latest.look()
    latest.read()
    assert latest.settings is before


def test_a_worker_that_is_started_later_gets_no_provider_that_the_running_ones_could_not_open(tmp_path: Path) -> None:
    path, before = tmp_path / "gateway.yaml", settings()
    path.write_text("a")
    two_lines = settings(providers={"alpha": {**PROVIDER, "api_key": "one\ntwo"}})
    latest = Latest(before, ConfigurationSource(path, lambda: two_lines, References()))
    latest.read()
    assert latest.settings is before


def test_a_secret_that_is_swapped_as_kubernetes_does_it_is_a_change(tmp_path: Path) -> None:
    path, references = tmp_path / "gateway.yaml", References()
    path.write_text("providers: { alpha: { base_url: 'http://127.0.0.1:1/v1', api_key: 'file:./key' } }\n")

    def hold(name: str, key: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(key)
        (tmp_path / "..data_tmp").symlink_to(name)
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")

    hold("..1", "the-first-key")
    (tmp_path / "key").symlink_to("..data/key")
    latest = Latest(
        load(path, {}, references=references),
        ConfigurationSource(path, lambda: load(path, {}, references=references), references),
    )
    latest.look()
    latest.look()
    hold("..2", "a-second-key!")  # as long as the first
    latest.look()
    latest.look()
    [key] = latest.settings.providers["alpha"].keys
    assert key.get_secret_value() == "a-second-key!"
