"""What a change makes of a client's keys, and what the audit says of it."""

from datetime import timedelta
from typing import Any

import pytest

from gateway.core.errors import ClientNotFound, InvalidRequest, KeyConflict
from gateway.keys import StoredKey, changes, client_settings
from gateway.keys.stored import KeyState
from tests.unit.keys.given import NOW, key, row

MADE: dict[str, Any] = {"key_id": "id-new", "who": "tests", "at": NOW}
LATER = NOW + timedelta(days=30)


def states(rows: tuple[StoredKey, ...]) -> list[KeyState]:
    return [each.state(NOW) for each in rows]


def test_a_new_client_has_what_was_said_of_it_and_a_key() -> None:
    settings = client_settings({"role": "viewer", "expires": "2030-01-31", "max_width": 3, "require": {"zdr": True}})
    change = changes.created("app", settings, key(1), **MADE)([])

    [made] = change.rows
    assert (made.name, made.role, made.sha256, made.hint) == ("app", "viewer", key(1).sha256, key(1).text[-4:])
    assert made.settings == {"max_width": 3, "require": {"zdr": True}}
    assert made.expires_at == LATER.replace(hour=0)
    assert (change.action, change.before) == ("created", None)
    assert change.after == {
        "role": "viewer",
        "expires": "2030-01-31T00:00:00Z",
        "max_width": 3,
        "require": {"zdr": True},
        "keys": [{"id": "id-new", "hint": made.hint}],
    }


def test_a_name_is_given_once() -> None:
    with pytest.raises(KeyConflict, match="there is a client 'app' already"):
        changes.created("app", client_settings({}), key(2), **MADE)([row(1)])


def test_a_change_is_that_of_every_key_of_the_client() -> None:
    rows = [row(1, settings={"max_width": 3}), row(2, settings={"max_width": 3, "adhoc": True})]
    change = changes.changed("app", {"max_width": 5, "expires": "2030-01-31T12:00:00Z"}, client_settings)(rows)

    assert [each.settings for each in change.rows] == [{"max_width": 5, "adhoc": True}] * 2
    assert [each.expires_at for each in change.rows] == [LATER] * 2
    assert (change.before or {})["max_width"] == 3
    assert (change.after or {})["max_width"] == 5
    assert [each.sha256 for each in change.rows] == [each.sha256 for each in rows]


@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ({"models": None}, {"require": {"zdr": True, "regions": ["eu"]}}),
        ({"require": {"zdr": None}}, {"models": ["m"], "require": {"regions": ["eu"]}}),
        ({"require": {"regions": ["us"]}}, {"models": ["m"], "require": {"zdr": True, "regions": ["us"]}}),
        ({"require": None, "models": None}, {}),
        ({}, {"models": ["m"], "require": {"zdr": True, "regions": ["eu"]}}),
    ],
)
def test_null_means_the_default_and_sections_are_merged(patch: dict[str, Any], left: dict[str, Any]) -> None:
    rows = [row(1, settings={"models": ["m"], "require": {"zdr": True, "regions": ["eu"]}})]

    [changed] = changes.changed("app", patch, client_settings)(rows).rows

    assert changed.settings == left


@pytest.mark.parametrize(("patch", "field"), [({"modls": None}, "modls"), ({"require": {"zrd": None}}, "require.zrd")])
def test_null_for_an_unknown_field_is_refused(patch: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: unknown key; did you mean"):
        changes.changed("app", patch, client_settings)([row(1, settings={"require": {"zdr": True}})])


@pytest.mark.parametrize(("patch", "role"), [({"role": "admin"}, "admin"), ({"admin": True}, "admin"), ({}, "viewer")])
def test_a_role_changes_by_either_word(patch: dict[str, Any], role: str) -> None:
    [changed] = changes.changed("app", patch, client_settings)([row(1, role="viewer")]).rows

    assert changed.role == role
    assert "admin" not in changed.settings


def test_a_change_that_is_not_valid_changes_nothing() -> None:
    with pytest.raises(InvalidRequest, match="max_width: must be at most 8"):
        changes.changed("app", {"max_width": 9}, client_settings)([row(1)])


def test_without_grace_a_rotation_ends_the_old_keys() -> None:
    change = changes.rotated("app", key(3), grace_s=0, **MADE)([row(1), row(2)])

    assert states(change.rows) == [KeyState.REVOKED, KeyState.REVOKED, KeyState.ACTIVE]


def test_with_grace_the_old_key_is_good_until_its_end_and_an_earlier_end_stays() -> None:
    soon = NOW + timedelta(seconds=60)
    rows = [row(1, retires_at=soon), row(2, settings={"adhoc": True}, role="admin", expires_at=LATER)]
    change = changes.rotated("app", key(3), grace_s=3600, **MADE)(rows)

    assert states(change.rows) == [KeyState.RETIRING, KeyState.RETIRING, KeyState.ACTIVE]
    first, second, new = change.rows
    assert (first.retires_at, second.retires_at) == (soon, NOW + timedelta(hours=1))
    assert (new.settings, new.role, new.expires_at, new.retires_at) == ({"adhoc": True}, "admin", LATER, None)


def test_a_key_whose_grace_is_over_is_put_away_by_the_next_rotation() -> None:
    rows = [row(1, retires_at=NOW - timedelta(seconds=1)), row(2)]

    assert states(changes.rotated("app", key(3), grace_s=60, **MADE)(rows).rows) == [
        KeyState.REVOKED,
        KeyState.RETIRING,
        KeyState.ACTIVE,
    ]


@pytest.mark.parametrize("grace_s", [-1, float("inf"), float("nan"), 10**12])
def test_a_grace_is_a_time_that_somebody_can_mean(grace_s: float) -> None:
    with pytest.raises(InvalidRequest, match="grace_s must be from 0 to"):
        changes.rotated("app", key(1), grace_s=grace_s, **MADE)


def test_an_expired_client_gets_no_new_key_that_would_not_work() -> None:
    with pytest.raises(KeyConflict, match=r"has expired.*change 'expires' first"):
        changes.rotated("app", key(2), grace_s=0, **MADE)([row(1, expires_at=NOW)])


@pytest.mark.parametrize(("which", "ended"), [(None, [1, 2]), ("id-000002", [2]), ("hint", [1])])
def test_all_keys_are_revoked_or_the_one_that_is_named(which: str | None, ended: list[int]) -> None:
    rows = [row(1, hint="hint"), row(2, hint="abcd")]

    change = changes.revoked("app", at=NOW, key=which)(rows)

    assert [each.id for each in change.rows] == [row(number).id for number in ended]
    assert states(change.rows) == [KeyState.REVOKED] * len(ended)


def test_a_key_that_is_not_there_is_not_revoked() -> None:
    with pytest.raises(ClientNotFound, match="has no key 'nope'; it has: hint"):
        changes.revoked("app", at=NOW, key="nope")([row(1, hint="hint")])


@pytest.mark.parametrize(
    "decide",
    [
        changes.changed("app", {}, client_settings),
        changes.rotated("app", key(1), grace_s=0, **MADE),
        changes.revoked("app", at=NOW),
    ],
)
def test_who_has_no_key_is_not_found(decide: Any) -> None:
    with pytest.raises(ClientNotFound, match="no client 'app' has a key in the database"):
        decide([])


def test_no_change_tells_a_key_or_its_hash() -> None:
    rows = [row(1), row(2)]
    made = [
        changes.created("app", client_settings({}), key(1), **MADE)([]),
        changes.changed("app", {"adhoc": True}, client_settings)(rows),
        changes.rotated("app", key(3), grace_s=60, **MADE)(rows),
        changes.revoked("app", at=NOW)(rows),
    ]
    for change in made:
        told = repr((change.before, change.after))
        assert not any(key(number).text in told or key(number).sha256 in told for number in (1, 2, 3))
    assert key(1).text not in repr(key(1))
