"""A key that takes the place of another: which is asked, when the former is forgotten, and what of it is told."""

from functools import partial

import pytest

from providers import step_by_step, succeeded
from providers.exchange import Request
from providers.keys import RotatedKey, RotationOutcome
from providers.keys.rotation import TRY_NEW_EVERY_S
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.keys.inside.test_key_ring import REQUEST, OneKey, limited, refused
from tests.unit.racing.virtual_time import run


class Keys:
    """A place with a new key and one or more former ones, in virtual time."""

    def __init__(self, *names: str) -> None:
        self.now_s = 1000.0
        self.names = list(names)
        self.told: list[RotationOutcome] = []
        self.upstreams: dict[str, OneKey] = {}
        self.asked: list[str] = []
        self.place = RotatedKey(self.names, self._opened, tell=self.told.append, clock=lambda: self.now_s)

    def _opened(self, key: str) -> OneKey:
        upstream = self.upstreams[key] = OneKey(key)
        upstream.meanwhile = lambda: self.asked.append(key)
        return upstream

    def refuse(self, *names: str) -> None:
        for name, upstream in self.upstreams.items():
            upstream.error = refused() if name in names else None

    async def ask(self, request: Request = REQUEST) -> list[str]:
        """Return the keys that one request was sent with."""
        self.asked.clear()
        await step_by_step(lambda: self.place.stream(request), request.sendings)
        return list(self.asked)


def test_a_new_key_that_answers_ends_the_former_at_once() -> None:
    async def main() -> None:
        keys = Keys("new", "old")
        assert await keys.ask() == ["new"]
        assert (keys.names, keys.told) == (["new"], [RotationOutcome.DONE])
        assert await keys.ask() == ["new"]
        assert keys.told == [RotationOutcome.DONE]

    run(main())


def test_while_the_new_key_is_refused_the_former_is_asked_first_and_the_new_one_tried_now_and_then() -> None:
    async def main() -> None:
        keys = Keys("new", "old")
        keys.refuse("new")
        assert await keys.ask() == ["new", "old"]
        assert await keys.ask() == ["old"]
        keys.now_s += TRY_NEW_EVERY_S
        assert await keys.ask() == ["new", "old"]
        assert keys.told == [RotationOutcome.REFUSED]  # once
        keys.refuse()
        keys.now_s += TRY_NEW_EVERY_S
        assert await keys.ask() == ["new"]
        assert keys.told == [RotationOutcome.REFUSED, RotationOutcome.DONE]

    run(main())


def test_a_former_key_that_is_revoked_is_followed_by_the_new_one_in_the_same_request() -> None:
    async def main() -> None:
        keys = Keys("new", "old")
        keys.refuse("new")
        await keys.ask()
        keys.refuse("old")
        assert await keys.ask() == ["old", "new"]
        assert keys.names == ["new"]

    run(main())


def test_a_provider_that_goes_over_to_the_new_key_between_two_refusals_is_asked_again() -> None:
    async def main() -> None:
        keys = Keys("new", "old")
        keys.refuse("new")

        def switch() -> None:
            keys.asked.append("old")
            keys.refuse("old")

        keys.upstreams["old"].meanwhile = switch
        assert await keys.ask() == ["new", "old", "new"]

    run(main())


def test_where_all_are_refused_the_new_keys_error_is_told_and_nothing_forgotten() -> None:
    async def main() -> None:
        keys = Keys("new", "old")
        for name, upstream in keys.upstreams.items():
            upstream.error = UpstreamError(ErrorKind.PROVIDER_AUTH, f"{name} is wrong", status=401)
        for _ in range(2):
            with pytest.raises(UpstreamError, match="new is wrong"):
                await keys.ask()
        assert (keys.names, keys.told) == (["new", "old"], [])

    run(main())


def test_an_error_that_is_not_about_keys_is_no_answer_and_asks_nobody_else() -> None:
    async def main() -> None:
        keys = Keys("new", "old")
        keys.upstreams["new"].error = limited()
        with pytest.raises(UpstreamError, match="slow down"):
            await keys.ask()
        assert keys.asked == ["new"]
        assert keys.names == ["new", "old"]

    run(main())


def test_a_key_between_two_that_answers_ends_only_the_older_one() -> None:
    async def main() -> None:
        keys = Keys("newest", "new", "old")
        keys.refuse("newest", "old")
        assert await keys.ask() == ["newest", "old", "new"]
        assert keys.names == ["newest", "new"]
        assert await keys.ask() == ["new"]

    run(main())


def test_every_kind_of_request_goes_over_to_the_other_key() -> None:
    async def main() -> None:
        for kind in ("send", "fetch", "list"):
            keys = Keys("new", "old")
            keys.refuse("new")
            match kind:
                case "send":
                    await step_by_step(partial(keys.place.send, "embeddings", REQUEST), REQUEST.sendings)
                case "fetch":
                    await keys.place.fetch("GET", "responses/1", [])
                case _:
                    await keys.place.list_models()
            assert keys.asked == ["new", "old"]
            assert "old" not in repr(keys.place)
            await keys.place.aclose()
            assert all(upstream.closed for upstream in keys.upstreams.values())

    run(main())


def test_each_place_keeps_its_former_key_until_that_is_forgotten() -> None:
    first = succeeded({0: "a", 1: "b"}, {})
    assert first == {0: ["a"], 1: ["b"]}
    second = succeeded({0: "a2", 1: "b"}, first)
    assert second == {0: ["a2", "a"], 1: ["b"]}
    assert succeeded({0: "a2", 1: "b"}, second) == second
    assert succeeded({0: "a3"}, second) == {0: ["a3", "a2", "a"]}
    assert succeeded({0: "a"}, second) == {0: ["a", "a2"]}  # taken back


def test_of_many_keys_that_never_answered_the_last_and_the_one_that_did_stay_known() -> None:
    keys = succeeded({0: "a"}, {})
    for name in ("b", "c", "d", "e"):
        keys = succeeded({0: name}, keys)
    assert keys == {0: ["e", "d", "a"]}


def test_a_key_that_moves_to_another_place_replaces_none() -> None:
    assert succeeded({0: "b", 1: "c"}, {0: ["a"], 1: ["b"], 2: ["c"]}) == {0: ["b"], 1: ["c"]}
