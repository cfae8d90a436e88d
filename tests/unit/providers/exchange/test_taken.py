"""A request that is refused for its form: one at a time, what was tried is kept, and the next one is sent so."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from gateway.api.vectors import _embedded
from gateway.cli.live import _ask_for_a_token
from gateway.fleet import Clocks, Deployment
from providers import OfCall, Sendings, step_by_step
from providers.dialects import CHAT
from providers.exchange import Exchange, FormRequest, Request, SentFields, Upstream, UpstreamAnswer, adapted, taken
from providers.keys import KeyRing, RotatedKey
from providers.refusals import ErrorKind, Fact, Kind, LearntFacts, UpstreamError
from tests.unit.providers.keys.inside.test_key_ring import OneKey, limited

FIELDS = ("verbosity", "temperature", "top_p")


def refusing(*names: str, status: int = 400) -> UpstreamError:
    said = f"Unrecognized request argument supplied: {names[0]}" if names else "messages: too short"
    return UpstreamError(ErrorKind.BAD_REQUEST, said, status=status)


class Strict(OneKey):
    """The upstream of one key whose vendor refuses these fields, one after the other."""

    def __init__(
        self, *refused: str, learnt: LearntFacts | None = None, fails: Sequence[UpstreamError | None] = ()
    ) -> None:
        super().__init__("key", can_fetch=True)
        self.learnt, self._refused, self._fails = learnt or LearntFacts(), refused, [*fails]
        self.sent: list[tuple[str, ...]] = []

    async def stream(self, request: Request) -> Exchange:
        answer: Exchange = await self._taken(request, super().stream)
        return answer

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        answer: UpstreamAnswer = await self._taken(request, partial(super().send, path))
        return answer

    async def _taken(self, request: Request, ask: Callable[[Request], Awaitable[Any]]) -> Any:
        asked = FormRequest(request, CHAT.name, CHAT.requests)

        async def answered(sent: SentFields) -> Any:
            request.sendings.number += 1
            self.sent.append(tuple(name for name in FIELDS if name in sent.fields))
            if self._fails and (failure := self._fails.pop(0)) is not None:
                raise failure
            if found := next((name for name in self._refused if name in sent.fields), None):
                raise refusing(found)
            return await ask(request)

        return await taken(self.learnt, asked, say=lambda facts: adapted(request.fields, facts, asked), ask=answered)


def request(*names: str, **options: Any) -> Request:
    fields = {"messages": msgspec.Raw(b"[]"), **{name: msgspec.Raw(b"0.5") for name in names}}
    return Request("m", fields, drop_params=True, **options)


def fact(name: str) -> Fact:
    return Fact(Kind.FIELD, name, dialect="chat")


async def stream(upstream: Upstream, asked: Request) -> object:
    return await step_by_step(lambda: upstream.stream(asked), asked.sendings)


async def send(upstream: Upstream, asked: Request) -> object:
    return await step_by_step(lambda: upstream.send("embeddings", asked), asked.sendings)


def alone(strict: Strict) -> Upstream:
    return strict


def in_a_ring(strict: Strict) -> Upstream:
    return KeyRing("acme", ("one", "two"), lambda key: strict if key == "one" else OneKey(key, can_fetch=True))


def rotated(strict: Strict) -> Upstream:
    return RotatedKey(["new", "former"], lambda _: strict, tell=lambda _: None)


def rotated_in_a_ring(strict: Strict) -> Upstream:
    return KeyRing("acme", ("one", "two"), lambda key: rotated(strict) if key == "one" else OneKey(key, can_fetch=True))


@pytest.mark.parametrize("ask", [stream, send], ids=["stream", "send"])
@pytest.mark.parametrize("placed", [alone, in_a_ring, rotated, rotated_in_a_ring], ids=lambda each: each.__name__)
async def test_who_asks_without_a_race_sends_one_form_after_the_other_with_the_same_key(
    placed: Callable[[Strict], Upstream], ask: Callable[[Upstream, Request], Awaitable[object]]
) -> None:
    strict, asked = Strict("verbosity", "top_p"), request(*FIELDS)
    upstream = placed(strict)
    assert await ask(upstream, asked)
    assert strict.sent == [FIELDS, ("temperature", "top_p"), ("temperature",)]
    assert (asked.sendings.number, asked.sendings.left_out) == (3, ("verbosity", "top_p"))
    assert not any(astuple(asked.sendings.trying))
    assert strict.learnt.of("m") == (fact("verbosity"), fact("top_p"))


@pytest.mark.parametrize("named", ["top_k", "topK"])
async def test_a_field_that_is_refused_also_where_it_is_left_out_is_sent_the_next_time(named: str) -> None:
    strict = Strict(fails=[refusing(named), refusing(named)])  # Google's own refusals spell it in both ways
    with pytest.raises(UpstreamError):
        await stream(strict, request("topK"))
    assert (len(strict.sent), strict.learnt.of("m")) == (2, ())


async def test_check_live_goes_the_same_way() -> None:
    strict = Strict("max_tokens")
    assert await _ask_for_a_token(strict, "m", ("chat",)) == (True, None)
    assert len(strict.sent) == 2


async def test_vectors_are_compared_in_the_form_that_is_taken() -> None:
    strict = Strict("encoding_format")
    clocks = Clocks(connect_s=5.0, ttft_s=60.0, stall_s=60.0, total_s=None)
    deployment = Deployment(
        name="a/m", provider="a", model="m", upstream=strict, clocks=clocks, price=None,
        bills_after_disconnect=None, extra_body={}, upstream_stream=True,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"data|vectors"):  # the stand-in's answer has none
        await _embedded(deployment)
    assert len(strict.sent) == 2
    assert strict.learnt.of("m") == (fact("encoding_format"),)


async def test_what_is_kept_at_its_provider_is_asked_once_and_the_next_time_in_the_form_that_is_taken() -> None:
    """As a request to a stored object is."""
    strict = Strict("verbosity")
    for forms in ([FIELDS], [FIELDS, FIELDS[1:]]):
        asked = request(*FIELDS, once=True)
        asked.fields["store"] = msgspec.Raw(b"true")  # type: ignore[index] # a dict
        with suppress(UpstreamError):
            await step_by_step(partial(strict.send, "responses", asked), asked.sendings)
        assert strict.sent == forms


async def test_one_request_is_one_form_and_its_error_tells_of_another_and_what_it_taught_is_supposed() -> None:
    strict, asked = Strict("verbosity"), request(*FIELDS)
    with pytest.raises(UpstreamError) as raised:
        await strict.stream(asked)
    assert raised.value.has_another_form
    assert (len(strict.sent), strict.learnt.of("m")) == (1, (fact("verbosity"),))
    assert strict.learnt.supposed


async def test_another_key_is_sent_the_form_that_was_found_and_what_was_taught_is_kept() -> None:
    learnt = LearntFacts()
    keys = [Strict("verbosity", learnt=learnt, fails=[None, limited(30)]), Strict("verbosity", learnt=learnt)]
    asked, left = request(*FIELDS), iter(keys)
    assert await stream(KeyRing("acme", ("one", "two"), lambda _: next(left), clock=lambda: 1000.0), asked)
    assert [each.sent for each in keys] == [[FIELDS, FIELDS[1:]], [FIELDS[1:]]]
    assert (learnt.of("m"), learnt.supposed) == ((fact("verbosity"),), set())


@pytest.mark.parametrize(
    ("last", "status", "kept"),
    [
        (UpstreamError(ErrorKind.SERVER_ERROR, "down", status=503), 503, True),  # says nothing of the form
        (refusing(status=422), 422, True),  # of what is wrong beside it
        (refusing("verbosity", status=422), 400, False),  # of what was left out: the first refusal is told
    ],
)
async def test_where_the_next_form_is_refused_too_it_is_kept_unless_that_is_about_it(
    last: UpstreamError, status: int, *, kept: bool
) -> None:
    strict, asked = Strict("verbosity", fails=[None, last]), request(*FIELDS)
    with pytest.raises(UpstreamError) as raised:
        await stream(strict, asked)
    assert (raised.value.status, raised.value.has_another_form) == (status, False)
    assert (len(strict.sent), strict.learnt.of("m")) == (2, (fact("verbosity"),) if kept else ())


@pytest.mark.parametrize("once", [True, False])
async def test_where_it_must_not_be_sent_twice_or_no_request_is_left_it_is_supposed_all_the_same(once: bool) -> None:
    strict = Strict("verbosity")
    asked = request(*FIELDS, once=once, sendings=Sendings(of_call=OfCall(number=3, most=9 if once else 3)))
    asked.fields["store"] = msgspec.Raw(b"true")  # type: ignore[index] # a dict
    with pytest.raises(UpstreamError) as raised:
        await stream(strict, asked)
    assert (len(strict.sent), strict.learnt.of("m")) == (1, (fact("verbosity"),))
    assert raised.value.message.endswith("has made 3 requests, its max_requests)") is not once
