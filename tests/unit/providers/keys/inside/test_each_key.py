"""Who asks without a race goes through the keys by one small driver, whatever is asked and however keys are refused."""

from collections.abc import Awaitable, Callable
from functools import partial

import pytest
from msgspec.structs import astuple

from gateway.api.vectors import _embedded
from gateway.cli.live import _ask_for_a_token
from gateway.fleet import Clocks, Deployment
from providers import MOST_OF_CALL, OfCall, Sendings, step_by_step
from providers.exchange import Request, Upstream
from providers.keys import KeyRing, RotatedKey
from providers.refusals import ErrorKind, UpstreamError
from tests.unit.providers.keys.inside.test_key_ring import OneKey, limited, refused

Made = tuple[Upstream, list[OneKey]]


def ring(error: UpstreamError) -> Made:
    keys: list[OneKey] = []

    def opened(key: str) -> OneKey:
        keys.append(OneKey(key, can_fetch=True))
        return keys[-1]

    upstream = KeyRing("acme", ("one", "two"), opened, clock=lambda: 1000.0)
    keys[0].error = error
    return upstream, keys


def rotated() -> Made:
    keys = [OneKey("new", can_fetch=True), OneKey("former", can_fetch=True)]
    keys[0].error = refused()
    left = iter(keys)
    return RotatedKey(["new", "former"], lambda _: next(left), tell=lambda _: None), keys


FIRST_KEYS: dict[str, Callable[[], Made]] = {
    "limited": lambda: ring(limited(30)),
    "dead": lambda: ring(refused()),
    "rotated": rotated,
}


async def stream(upstream: Upstream) -> object:
    request = Request("m", {})
    return await step_by_step(lambda: upstream.stream(request), request.sendings)


async def send(upstream: Upstream) -> object:
    request = Request("m", {})
    return await step_by_step(lambda: upstream.send("embeddings", request), request.sendings)


async def list_models(upstream: Upstream) -> object:
    return await upstream.list_models()


async def check_live(upstream: Upstream) -> object:
    assert await _ask_for_a_token(upstream, "m", ("chat",)) == (True, None)
    return True


async def check_embeddings(upstream: Upstream) -> object:
    assert await _ask_for_a_token(upstream, "m", ("embeddings",)) == (True, None)
    return True


ASKING = [stream, send, list_models, check_live, check_embeddings]


@pytest.mark.parametrize("first", FIRST_KEYS)
@pytest.mark.parametrize("ask", ASKING, ids=lambda each: each.__name__)
async def test_a_first_key_that_is_refused_is_followed_by_the_next(
    ask: Callable[[Upstream], Awaitable[object]], first: str
) -> None:
    upstream, keys = FIRST_KEYS[first]()
    assert await ask(upstream)
    assert [key.asked for key in keys] == [1, 1]


@pytest.mark.parametrize("first", ["dead", "rotated"])
async def test_a_stored_object_is_looked_for_with_the_next_key(first: str) -> None:
    upstream, keys = FIRST_KEYS[first]()
    assert (await upstream.fetch("GET", "responses/1", [])).status == 200
    assert [key.asked for key in keys] == [1, 1]


@pytest.mark.parametrize("first", FIRST_KEYS)
async def test_vectors_are_compared_with_the_next_key(first: str) -> None:
    upstream, keys = FIRST_KEYS[first]()
    clocks = Clocks(connect_s=5.0, ttft_s=60.0, stall_s=60.0, total_s=None)
    deployment = Deployment(
        name="a/m", provider="a", model="m", upstream=upstream, clocks=clocks, price=None,
        bills_after_disconnect=None, extra_body={}, upstream_stream=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"data|vectors"):  # the stand-in's answer has none
        await _embedded(deployment)
    assert [key.asked for key in keys] == [1, 1]


@pytest.mark.parametrize("first", FIRST_KEYS)
async def test_one_request_is_one_key_and_its_error_tells_of_another(first: str) -> None:
    upstream, keys = FIRST_KEYS[first]()
    with pytest.raises(UpstreamError) as raised:
        await upstream.stream(Request("m", {}))
    assert raised.value.has_another_key
    assert [key.asked for key in keys] == [1, 0]


@pytest.mark.parametrize("first", FIRST_KEYS)
async def test_where_no_request_is_left_the_error_stays_and_says_so(first: str) -> None:
    upstream, keys = FIRST_KEYS[first]()
    request = Request("m", {}, sendings=Sendings(of_call=OfCall(number=3, most=3)))
    with pytest.raises(UpstreamError) as raised:
        await step_by_step(partial(upstream.stream, request), request.sendings)
    assert not raised.value.has_another_key
    assert raised.value.message.endswith("has made 3 requests, its max_requests)")
    assert [key.asked for key in keys] == [1, 0]


async def test_an_error_that_is_not_about_keys_is_the_last_and_the_next_request_begins_anew() -> None:
    upstream, keys = ring(limited(30))
    keys[1].error = UpstreamError(ErrorKind.SERVER_ERROR, "down", status=500)
    request = Request("m", {})
    for asked in ([1, 1], [1, 2]):
        with pytest.raises(UpstreamError, match="down"):
            await step_by_step(partial(upstream.stream, request), request.sendings)
        assert [key.asked for key in keys] == asked
        assert not any(astuple(request.sendings.trying))


async def test_of_no_call_it_is_as_many_requests_as_a_call_may_make_and_its_error_says_so() -> None:
    keys = {f"key-{number}": OneKey(f"key-{number}", can_fetch=True) for number in range(MOST_OF_CALL + 9)}
    for key in keys.values():
        key.error = limited(30)
    upstream, request = KeyRing("acme", [*keys], keys.__getitem__, clock=lambda: 1000.0), Request("m", {})
    with pytest.raises(UpstreamError) as raised:
        await step_by_step(partial(upstream.stream, request), request.sendings)
    assert raised.value.message.endswith("has made 15 requests, its max_requests)")
    assert sum(key.asked for key in keys.values()) == MOST_OF_CALL
