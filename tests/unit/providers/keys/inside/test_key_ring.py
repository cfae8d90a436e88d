"""Several keys of one provider: which is asked, what a refusal costs, and what of it can be seen."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from providers import Sendings, step_by_step
from providers.dialects import CHAT, Dialect, Loss
from providers.exchange import Apart, Exchange, Request, UpstreamAnswer
from providers.keys import KeyRing
from providers.keys.ring import TRY_REFUSED_EVERY_S
from providers.models import Listing
from providers.refusals import ErrorKind, Facts, Findings, LearntFacts, UpstreamError, headroom

KEYS = ("sk-first-secret", "sk-second-secret", "sk-third-secret")
REQUEST = Request("m", {})
OTHER_MODEL = Request("other", {})


class Answering:
    """An exchange that has its answer."""

    status = 200
    connect_ms: float | None = None
    secrets: Sequence[str] = ()

    finishing = False
    usage_so_far = None

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers
        self.ended = False
        self.aborted = False
        self.blocks: list[bytes | UpstreamError] = [b"data: [DONE]\n\n"]

    async def read(self) -> bytes:
        if not self.blocks:
            self.ended = True
            return b""
        block = self.blocks.pop(0)
        if isinstance(block, UpstreamError):
            raise block
        return block

    def conclude(self) -> bytes:
        return b""

    def offer_to(self, listener: Callable[[bytes], bool]) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


class OneKey:
    """A provider under one key: it answers what it is told to, and counts."""

    def __init__(
        self, key: str, *, accepts_all_parameters: bool = True, can_fetch: bool = False, needs_warming: bool = False
    ) -> None:
        self.accepts_all_parameters = accepts_all_parameters
        self.refused_fields = frozenset[str]()
        self.can_fetch = can_fetch
        self.needs_warming = needs_warming
        self.learnt = LearntFacts()
        self.key = key
        self.asked = 0
        self.headers: dict[str, str] = {}
        self.error: UpstreamError | None = None
        self.exchanges: list[Answering] = []
        self.hangs = False
        self.closed = False
        self.saw: Callable[[Request], object] = lambda _: None
        self.meanwhile: Callable[[], None] = lambda: None  # what happens while it is asked

    def connect(self) -> None:
        """Do nothing."""

    def learn(self, request: Request, error: UpstreamError) -> Facts:
        return ()

    async def warm_up(self) -> None:
        """Do nothing."""

    async def stream(self, request: Request) -> Exchange:
        self.saw(request)
        self._answer()
        if self.hangs:
            await asyncio.Event().wait()
        self.exchanges.append(Answering(self.headers))
        return self.exchanges[-1]

    async def send(self, path: str, request: Request) -> UpstreamAnswer:
        self._answer()
        return UpstreamAnswer(200, self.headers, b"{}", None, 1.0)

    def losses(self, dialect: Dialect, model: str, fields: Mapping[str, msgspec.Raw]) -> Sequence[Loss]:
        return (Loss("seed", "it has none"),)

    async def fetch(self, method: str, path: str, query: list[tuple[str, str]]) -> UpstreamAnswer:
        self._answer()
        return UpstreamAnswer(200, self.headers, b"{}", None, 1.0)

    async def list_models(self, connect_timeout_s: float = 5.0) -> Listing:
        self._answer()
        return Listing((), {})

    async def aclose(self) -> None:
        self.closed = True

    def _answer(self) -> None:
        self.asked += 1
        self.meanwhile()
        if self.error is not None:
            raise self.error


class ThreeKeys:
    """A ring of three keys in virtual time."""

    def __init__(self, **abilities: bool) -> None:
        self.now_s = 1000.0
        self.keys: list[OneKey] = []
        self._abilities = abilities
        self.ring = KeyRing("acme", KEYS, self._opened, clock=lambda: self.now_s)

    def _opened(self, key: str) -> OneKey:
        self.keys.append(OneKey(key, **self._abilities))
        return self.keys[-1]

    @property
    def asked(self) -> list[int]:
        return [key.asked for key in self.keys]

    @property
    def in_flight(self) -> list[int]:
        return [key.in_flight for key in self.ring._keys]

    def cooling_s(self, key: int, model: str = "m") -> float:
        return self.ring._keys[key].at(model).cooling_s(self.now_s)

    def is_refused(self, key: int, model: str = "m") -> bool:
        return self.ring._keys[key].refused(model)

    async def begin(self, request: Request = REQUEST) -> Exchange:
        return await step_by_step(lambda: self.ring.stream(request), request.sendings)

    async def ask(self, request: Request = REQUEST) -> Exchange:
        """Make a whole call, with one key after the other."""
        exchange = await self.begin(request)
        while await exchange.read():
            pass
        return exchange


@pytest.fixture
def three_keys() -> ThreeKeys:
    return ThreeKeys()


def limited(retry_after_s: float | None = None) -> UpstreamError:
    return UpstreamError(ErrorKind.RATE_LIMITED, "slow down", status=429, retry_after_s=retry_after_s)


def refused(status: int = 401) -> UpstreamError:
    return UpstreamError(ErrorKind.PROVIDER_AUTH, "who are you", status=status)


def left(share: float) -> dict[str, str]:
    return {
        "x-ratelimit-remaining-requests": str(share * 100),
        "x-ratelimit-limit-requests": "100",
        "x-request-id": "r",
    }


async def test_keys_alike_take_turns(three_keys: ThreeKeys) -> None:
    for _ in range(6):
        await three_keys.ask()
    assert three_keys.asked == [2, 2, 2]


async def test_calls_at_the_same_time_are_spread_over_the_keys(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].hangs = True
    hanging = asyncio.create_task(three_keys.ring.stream(REQUEST))
    await asyncio.sleep(0)  # let it be under way
    under_way = [await three_keys.ring.stream(REQUEST) for _ in range(2)]
    assert three_keys.in_flight == [1, 1, 1]
    under_way[0].abort()
    under_way[0].abort()
    under_way[0] = await three_keys.ring.stream(REQUEST)
    assert three_keys.asked == [1, 2, 1]
    for exchange in under_way:
        exchange.abort()
    hanging.cancel()
    await asyncio.wait([hanging])
    assert three_keys.in_flight == [0, 0, 0]


async def test_the_key_with_the_most_headroom_is_asked(three_keys: ThreeKeys) -> None:
    for key, share in zip(three_keys.keys, (0.1, 0.9, 0.5), strict=True):
        key.headers = left(share)
        await three_keys.ask()
    await three_keys.ask()
    await three_keys.ask()
    assert three_keys.asked == [1, 3, 1]


async def test_headroom_comes_back_with_time(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].headers = left(0.1)
    for _ in range(3):
        await three_keys.ask()
    await three_keys.ask()
    assert three_keys.asked[0] == 1
    three_keys.now_s += 60
    for _ in range(3):
        await three_keys.ask()
    assert three_keys.asked[0] == 2


async def test_a_rate_limited_key_is_followed_by_the_next_and_rests(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = limited(30)
    await three_keys.ask()
    assert three_keys.asked == [1, 1, 0]
    for _ in range(4):
        await three_keys.ask()
    assert three_keys.asked[0] == 1
    assert three_keys.cooling_s(0) == 30
    three_keys.keys[0].error = None
    three_keys.now_s += 30
    for _ in range(3):
        await three_keys.ask()
    assert three_keys.asked[0] == 2
    assert three_keys.cooling_s(0) == 0


async def test_a_key_cools_down_for_one_model_only(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = limited(30)
    await three_keys.ask()
    three_keys.keys[0].error = None
    for _ in range(3):
        await three_keys.ask(OTHER_MODEL)
    assert three_keys.asked[0] == 2
    assert (three_keys.cooling_s(0), three_keys.cooling_s(0, "other")) == (30, 0)


async def test_when_every_key_is_limited_the_least_retry_after_is_told_and_nobody_is_asked_again(
    three_keys: ThreeKeys,
) -> None:
    for key, wait_s in zip(three_keys.keys, (30.0, 12.0, None), strict=True):
        key.error = limited(wait_s)
    with pytest.raises(UpstreamError) as raised:
        await three_keys.ask()
    assert raised.value.kind is ErrorKind.RATE_LIMITED
    assert raised.value.retry_after_s == 0.5  # of the one that did not say
    three_keys.now_s += 0.5
    with pytest.raises(UpstreamError):
        await three_keys.ask()
    assert three_keys.asked == [1, 1, 2]
    with pytest.raises(UpstreamError, match="3 of 3 keys are rate-limited"):
        await three_keys.ask()
    assert three_keys.asked == [1, 1, 2]


async def test_a_refused_key_stays_out_but_is_tried_now_and_then(three_keys: ThreeKeys) -> None:
    three_keys.keys[1].error = refused()
    for _ in range(6):
        await three_keys.ask()
    assert three_keys.asked[1] == 1
    assert three_keys.is_refused(1)
    three_keys.now_s += TRY_REFUSED_EVERY_S
    await three_keys.ask()
    await three_keys.ask()
    assert three_keys.asked[1] == 2
    three_keys.keys[1].error = None
    three_keys.now_s += TRY_REFUSED_EVERY_S
    for _ in range(4):
        await three_keys.ask()
    assert three_keys.asked[1] == 4
    assert not three_keys.is_refused(1)


async def test_an_unknown_key_is_out_for_every_model_and_a_forbidden_one_for_its_own(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = refused(401)
    three_keys.keys[1].error = refused(403)
    await three_keys.ask()
    assert three_keys.asked == [1, 1, 1]
    three_keys.keys[0].error = three_keys.keys[1].error = None
    for _ in range(4):
        await three_keys.ask(OTHER_MODEL)
    assert three_keys.asked == [1, 3, 3]
    assert three_keys.is_refused(1)
    assert not three_keys.is_refused(1, "other")


async def test_a_key_that_may_not_ask_one_model_is_well_for_others_whatever_the_status(three_keys: ThreeKeys) -> None:
    said = "key not allowed to access model. This key can only access models=['other']"
    three_keys.keys[0].error = UpstreamError(ErrorKind.PROVIDER_AUTH, said, status=401)
    await three_keys.ask()
    three_keys.keys[0].error = None
    for _ in range(3):
        await three_keys.ask(OTHER_MODEL)
    assert three_keys.asked[0] == 2
    await three_keys.ask()
    assert three_keys.asked[0] == 2


async def test_a_model_that_makes_no_vectors_is_asked_for_answers_under_the_same_keys(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = refused(403)
    with pytest.raises(UpstreamError, match="all 3 keys are refused"):
        await step_by_step(lambda: three_keys.ring.send("embeddings", REQUEST), REQUEST.sendings)
    for key in three_keys.keys:
        key.error = None
    await three_keys.ask()
    assert sum(three_keys.asked) == 4


async def test_when_every_key_is_refused_the_operator_is_told(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = refused()
    with pytest.raises(UpstreamError, match="all 3 keys are refused; the last one asked: who are you") as raised:
        await three_keys.ask()
    assert raised.value.kind is ErrorKind.PROVIDER_AUTH
    assert raised.value.status == 401


async def test_refused_and_limited_keys_together_are_a_rate_limit(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = refused()
    three_keys.keys[1].error = three_keys.keys[2].error = limited(9)
    with pytest.raises(UpstreamError, match="2 of 3 keys are rate-limited, 1 refused") as raised:
        await three_keys.ask()
    assert (raised.value.kind, raised.value.retry_after_s) == (ErrorKind.RATE_LIMITED, 9)


async def test_a_key_limited_for_less_time_than_the_others_took_counts_as_limited(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = limited()
    three_keys.keys[1].error = three_keys.keys[2].error = refused()

    def take_long() -> None:
        three_keys.now_s += 10

    three_keys.keys[1].meanwhile = take_long
    with pytest.raises(UpstreamError, match="1 of 3 keys is rate-limited, 2 refused") as raised:
        await three_keys.ask()
    assert (raised.value.kind, raised.value.retry_after_s) == (ErrorKind.RATE_LIMITED, 0)


async def test_what_has_nothing_to_do_with_keys_is_not_tried_again(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = UpstreamError(ErrorKind.SERVER_ERROR, "down", status=500)
    with pytest.raises(UpstreamError, match="down"):
        await three_keys.ask()
    assert three_keys.asked == [1, 0, 0]
    assert three_keys.in_flight == [0, 0, 0]


async def test_a_rate_limit_inside_a_stream_cools_the_key_once_it_is_judged(three_keys: ThreeKeys) -> None:
    exchange = await three_keys.ring.stream(REQUEST)
    three_keys.keys[0].exchanges[0].blocks = [limited(20)]
    with pytest.raises(UpstreamError) as raised:
        await exchange.read()
    assert three_keys.cooling_s(0) == 0
    assert REQUEST.sendings.failed is not None
    REQUEST.sendings.failed(raised.value)
    assert three_keys.cooling_s(0) == 20
    assert three_keys.in_flight == [0, 0, 0]


async def test_the_headroom_told_is_the_ring_s(three_keys: ThreeKeys) -> None:
    for key, share in zip(three_keys.keys, (0.2, 0.4, 0.9), strict=True):
        key.headers = left(share)
    exchange = [await three_keys.ask() for _ in three_keys.keys][-1]
    assert headroom(exchange.headers) == pytest.approx(0.5)
    assert exchange.headers["x-request-id"] == "r"
    three_keys.keys[2].error = limited(30)
    exchange = await three_keys.ask()
    assert headroom(exchange.headers) == pytest.approx(0.2)  # the limited key has nothing left


async def test_a_ring_whose_provider_tells_nothing_tells_nothing(three_keys: ThreeKeys) -> None:
    assert headroom((await three_keys.ask()).headers) is None


async def test_whole_answers_go_round_the_ring_too(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = limited(5)
    three_keys.keys[1].headers = left(0.5)
    answer = await step_by_step(lambda: three_keys.ring.send("embeddings", REQUEST), REQUEST.sendings)
    assert three_keys.asked == [1, 1, 0]
    assert headroom(answer.headers) == pytest.approx(0.5)
    await three_keys.ring.list_models()
    assert three_keys.asked == [1, 1, 1]
    assert three_keys.in_flight == [0, 0, 0]


async def test_an_answer_says_under_which_key_it_was_given() -> None:
    keys = ["sk-0123456789abcdef", "short", "sk-0123456789abcdeg"]
    ring = KeyRing("acme", keys, OneKey, names=[None, None, "search"])
    requests = [Request("m", {}) for _ in range(2 * len(keys))]
    for request in requests[:3]:
        await ring.stream(request)
    for request in requests[3:]:
        await ring.send("embeddings", request)
    assert [request.sendings.key_name for request in requests] == 2 * ["…cdef", "#2", "search"]


async def test_a_refusal_says_under_which_key_it_was_last(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = refused()
    request = Request("m", {})
    with pytest.raises(UpstreamError):
        await three_keys.begin(request)
    assert request.sendings.key_name == "#3"


async def test_no_key_shows(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = refused()
    with pytest.raises(UpstreamError) as raised:
        await three_keys.ask()
    shown = f"{three_keys.ring!r} {raised.value!r}"
    assert not [key for key in KEYS if key in shown]


async def test_closing_closes_every_key_s_upstream(three_keys: ThreeKeys) -> None:
    await three_keys.ring.aclose()
    assert all(key.closed for key in three_keys.keys)
    assert three_keys.ring.losses(CHAT, "m", {}) == (Loss("seed", "it has none"),)


async def test_what_one_account_keeps_is_found_under_whichever_key(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = UpstreamError(ErrorKind.NOT_FOUND, "no such response", status=404)
    await three_keys.ring.fetch("GET", "responses/r", [])
    assert three_keys.asked == [1, 1, 0]
    three_keys.keys[1].error = three_keys.keys[2].error = UpstreamError(
        ErrorKind.PROVIDER_AUTH, "no such key", status=401
    )
    with pytest.raises(UpstreamError, match="no such response"):
        await three_keys.ring.fetch("GET", "responses/r", [])
    assert three_keys.asked == [2, 2, 1]
    three_keys.keys[0].error = UpstreamError(ErrorKind.SERVER_ERROR, "broken", status=500)
    with pytest.raises(UpstreamError, match="broken"):
        await three_keys.ring.fetch("GET", "responses/r", [])
    assert three_keys.asked == [3, 2, 1]


@pytest.mark.parametrize("ability", ["accepts_all_parameters", "can_fetch", "needs_warming"])
@pytest.mark.parametrize("has", [True, False])
def test_a_ring_can_and_needs_what_its_keys_do(ability: str, has: bool) -> None:
    assert getattr(ThreeKeys(**{ability: has}).ring, ability) is has


BOUND = UpstreamError(ErrorKind.BAD_REQUEST, "not verified", status=400, findings=Findings(is_bound=True))


async def test_reasoning_that_a_key_cannot_read_is_sent_with_the_next(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = three_keys.keys[1].error = BOUND
    await three_keys.ask()
    assert three_keys.asked == [1, 1, 1]
    assert not any(three_keys.is_refused(key) or three_keys.cooling_s(key) for key in range(3))


OUTSIZED = UpstreamError(
    ErrorKind.BAD_REQUEST, "Request too large for m", status=429, findings=Findings(is_outsized=True)
)


async def test_more_tokens_than_a_key_may_use_are_sent_with_the_next_and_cool_none(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error = three_keys.keys[1].error = OUTSIZED
    await three_keys.ask()
    assert three_keys.asked == [1, 1, 1]
    assert not any(three_keys.is_refused(key) or three_keys.cooling_s(key) for key in range(3))
    three_keys.keys[2].error = OUTSIZED
    with pytest.raises(UpstreamError, match="too large"):
        await three_keys.ask()


async def test_the_key_that_a_request_names_is_asked_first(three_keys: ThreeKeys) -> None:
    for _ in range(2):
        await three_keys.ask(Request("m", {}, first_key="#3"))
    assert three_keys.asked == [0, 0, 2]


async def test_keys_of_other_accounts_come_last_and_are_sent_no_reasoning(three_keys: ThreeKeys) -> None:
    sent = list[tuple[str, list[str]]]()
    for key in three_keys.keys:

        def saw(request: Request, name: str = key.key) -> None:
            sent.append((name, [*request.fields]))

        key.saw = saw
    apart = Apart(frozenset({"#1"}), {}, ("messages[1].content[0]",))
    one, two, three = KEYS
    three_keys.keys[1].error = limited(30)  # of the maker
    for left_out in ((), ("messages[1].content[0]",)):
        request = Request("m", {"messages": msgspec.Raw(b"[]")}, first_key="#2", apart=apart, sendings=Sendings())
        await three_keys.ask(request)
        assert request.sendings.left_out == left_out
        three_keys.keys[2].error = limited(30)
    assert sent == [(two, ["messages"]), (three, ["messages"]), (three, ["messages"]), (one, [])]


async def test_reasoning_that_no_key_can_read_is_the_providers_error(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = BOUND
    with pytest.raises(UpstreamError, match="not verified") as caught:
        await three_keys.ask()
    assert caught.value.findings.is_bound
    assert three_keys.asked == [1, 1, 1]


UNKNOWN = UpstreamError(ErrorKind.PROVIDER_AUTH, "not for you", status=403)
BUSY = UpstreamError(ErrorKind.RATE_LIMITED, "busy", status=429)


@pytest.mark.parametrize("error", [UNKNOWN, BUSY])
async def test_what_every_key_refuses_to_one_client_is_held_against_none_for_others(
    three_keys: ThreeKeys, error: UpstreamError
) -> None:
    for key in three_keys.keys:
        key.error = error
    for _ in range(2):
        with pytest.raises(UpstreamError, match=r"3 keys are|of 3 keys") as caught:
            await three_keys.ask(Request("m", {}, client="mallory"))
        assert (caught.value.kind, caught.value.findings.is_certain) == (error.kind, False)
    assert three_keys.asked == [1, 1, 1]
    assert not any(three_keys.is_refused(key) or three_keys.cooling_s(key) for key in range(3))
    for key in three_keys.keys:
        key.error = None
    await three_keys.ask(Request("m", {}, client="fair"))


async def test_what_three_clients_meet_at_every_key_is_held_against_all(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = UNKNOWN
    for client in ("one", "two", "three", "four", "five"):
        with pytest.raises(UpstreamError, match="all 3 keys are refused"):
            await three_keys.ask(Request("m", {}, client=client))
    assert three_keys.asked == [3, 3, 3]


async def test_a_key_is_at_fault_if_another_takes_the_same_request(three_keys: ThreeKeys) -> None:
    three_keys.keys[0].error, three_keys.keys[1].error = UNKNOWN, BUSY
    for _ in range(3):
        await three_keys.ask(Request("m", {}, client="fair"))
    assert three_keys.is_refused(0)
    assert three_keys.cooling_s(1)
    assert three_keys.asked == [1, 1, 3]


async def test_a_key_that_no_request_can_have_spoilt_is_out_at_once(three_keys: ThreeKeys) -> None:
    for key in three_keys.keys:
        key.error = UpstreamError(ErrorKind.PROVIDER_AUTH, "wrong", status=401, findings=Findings(is_certain=True))
    for _ in range(2):
        with pytest.raises(UpstreamError, match="all 3 keys are refused") as caught:
            await three_keys.ask(Request("m", {}, client="fair"))
        assert caught.value.findings.is_certain
    assert three_keys.asked == [1, 1, 1]
