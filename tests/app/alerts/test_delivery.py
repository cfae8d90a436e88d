"""Messages over real sockets: who gets them, when they are sent again, and what a bad receiver can do."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import structlog
from aiohttp import web
from pydantic import SecretStr

from gateway.alerts import MESSAGES_AT_ONCE, Alert, AlertEvent, AlertKind, AlertTasks, Delivery, Sender, Severity
from gateway.alerts.alerts import LEASE, RETRIES_S, SPREAD
from gateway.settings import Format, WebhookSettings
from tests.app.alerts.receiver import Receiver
from tests.app.alerts.verifying import verified
from tests.app.http.tunnels import TunnelProxy
from tests.patience import PATIENCE_S
from tests.support.servers import free_port
from tests.unit.alerts.inside.world import RESOLVE_AFTER_S, START, World, condition

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HANGS_S = 2.0  # then a receiver hangs


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver.running() as running:
        yield running


class Post:
    """A world whose messages are really sent."""

    def __init__(self, world: World, webhooks: Mapping[str, WebhookSettings], timeout_s: float) -> None:
        self.world = world
        self.webhooks = webhooks
        self.sender = Sender(
            unix_clock=lambda: world.elapsed_s + START.timestamp(), user_agent="holeshot/test", timeout_s=timeout_s
        )
        self.delivery = Delivery(
            [world.book, world.owns[0]],
            self.sender,
            webhooks=lambda: self.webhooks,
            utc_now=lambda: world.now,
            random=Random(1),
            listener=world.counts[0],
        )

    async def open(self, subject: str = "m") -> None:
        self.world.sources[0].now.append(condition(subject))
        await self.world.run(15)

    async def deliver(self, *, rounds: int = 1, every_s: float = 15.0) -> None:
        for _ in range(rounds):
            await self.delivery.deliver()
            self.world.elapsed_s += every_s

    @property
    def results(self) -> list[tuple[str, str]]:
        return self.world.counts[0].messages


@asynccontextmanager
async def posting(*, timeout_s: float = PATIENCE_S, **urls: str) -> AsyncIterator[Post]:
    webhooks = {name: WebhookSettings(url=SecretStr(url), secret=SecretStr(SECRET)) for name, url in urls.items()}
    post = Post(World(webhooks=tuple(urls)), webhooks, timeout_s)
    try:
        yield post
    finally:
        await post.sender.aclose()


async def test_a_message_is_signed_and_says_what_is_wrong_with_the_sql_that_shows_it(receiver: Receiver) -> None:
    async with posting(ops=receiver.url) as post:
        await post.open()
        await post.deliver(rounds=3)
    [(headers, body)] = receiver.received
    assert verified(headers, body, SECRET, now_s=int(post.world.now.timestamp()))
    assert headers["content-type"] == "application/json"
    said = msgspec.json.decode(body)
    assert (said["type"], said["data"]["key"], said["data"]["sql"]) == ("alert.opened", "model_out:m", "select 1")
    assert said["data"]["resolved_at"] is None
    assert post.results == [("ops", "sent")]


async def test_slack_gets_a_text_in_which_nobody_is_called(receiver: Receiver) -> None:
    async with posting(chat=receiver.url) as post:
        post.webhooks = {"chat": WebhookSettings(url=SecretStr(receiver.url), format=Format.SLACK)}
        await post.open("<!channel> & friends")
        await post.deliver()
        post.world.sources[0].now.clear()
        await post.world.run(2 * RESOLVE_AFTER_S)
        await post.deliver()
    (headers, body), (_, over) = receiver.received
    text = msgspec.json.decode(over)["text"]
    assert text == "*Resolved.* At its start: &lt;!channel&gt; &amp; friends: model_out"
    said = msgspec.json.decode(body)
    assert said["text"] == "*Look now:* &lt;!channel&gt; &amp; friends: model_out"
    assert [each["type"] for each in said["blocks"]] == ["section", "context", "section"]
    assert "select 1" in said["blocks"][2]["text"]["text"]
    assert "webhook-signature" not in headers


async def test_a_failed_message_is_sent_again_with_the_same_id_and_another_time(receiver: Receiver) -> None:
    receiver.answer = receiver.status(500, 503, 429, 200)
    async with posting(ops=receiver.url) as post:
        await post.open()
        await post.deliver(rounds=60)
    assert len(set(receiver.ids)) == 1
    assert post.results == [("ops", "failed")] * 3 + [("ops", "sent")]
    times = [int(headers["webhook-timestamp"]) for headers, _ in receiver.received]
    waits = [later - earlier for earlier, later in pairwise(times)]
    for waited_s, wanted_s in zip(waits, RETRIES_S, strict=False):
        assert wanted_s * (1 - SPREAD) <= waited_s <= wanted_s * (1 + SPREAD) + 15


async def test_a_receiver_that_stays_dead_is_given_up_after_a_day_and_costs_nothing_more(receiver: Receiver) -> None:
    receiver.answer = receiver.status(500)
    async with posting(ops=receiver.url) as post:
        await post.open()
        with structlog.testing.capture_logs() as logged:
            await post.deliver(rounds=30, every_s=3600)
        assert len(receiver.received) == len(RETRIES_S) + 1
        assert post.world.book.waiting == 0
    assert post.results[-1] == ("ops", "given_up")
    assert [each["event"] for each in logged].count("alerts.given_up") == 1


async def test_one_that_wants_no_more_is_not_asked_again(receiver: Receiver) -> None:
    receiver.answer = receiver.status(410)
    async with posting(ops=receiver.url) as post:
        await post.open()
        await post.deliver(rounds=30, every_s=3600)
    assert post.results == [("ops", "given_up")]


async def test_a_redirect_is_not_followed_anywhere(receiver: Receiver) -> None:
    async with Receiver.running() as other:

        async def redirect(_: web.Request) -> web.StreamResponse:
            return web.Response(status=307, headers={"location": other.url})

        receiver.answer = redirect
        async with posting(ops=receiver.url) as post:
            await post.open()
            with structlog.testing.capture_logs() as logged:
                await post.deliver()
        assert other.received == []
    assert post.results == [("ops", "failed")]
    assert logged[0]["answer"] == "307, a redirect, which is not followed"


class Slow:
    """A receiver that takes one message a second of the world, as Slack does, and says when the next."""

    def __init__(self, world: World, receiver: Receiver, wait: str = "1") -> None:
        self.taken: list[bytes] = []
        self.refused = 0
        self._world, self._receiver, self._wait = world, receiver, wait
        self._last_s = -1.0

    async def answer(self, _: web.Request) -> web.StreamResponse:
        if self._world.elapsed_s - self._last_s < 1.0:
            self.refused += 1
            return web.Response(status=429, headers={"retry-after": self._wait})
        self._last_s = self._world.elapsed_s
        self.taken.append(self._receiver.received[-1][1])
        return web.Response()


async def test_a_receiver_that_takes_one_a_second_gets_all_one_after_the_other(receiver: Receiver) -> None:
    async with posting(ops=receiver.url) as post:
        slow = Slow(post.world, receiver)
        receiver.answer = slow.answer
        for number in range(30):
            await post.open(f"m{number}")
        for _ in range(60):
            await post.delivery.deliver()
            post.world.elapsed_s += post.delivery.due_in_s
    assert len(slow.taken) == 30
    assert slow.refused < 30  # of those that were sent at once; then none
    assert len({msgspec.json.decode(each)["data"]["id"] for each in slow.taken}) == 30
    assert post.results.count(("ops", "given_up")) == 0


async def test_what_slack_could_not_be_sent_is_gathered_in_its_next_message(receiver: Receiver) -> None:
    async with posting(ops=receiver.url) as post:
        post.webhooks = {"ops": WebhookSettings(url=SecretStr(receiver.url), format=Format.SLACK)}
        slow = Slow(post.world, receiver)
        receiver.answer = slow.answer
        await post.open("first")
        await post.deliver(every_s=0.5)
        for number in range(40):
            await post.open(f"m{number}")
        receiver.answer = receiver.status(429)
        await post.deliver()
        receiver.answer = slow.answer
        for _ in range(20):
            await post.deliver()
    texts = [msgspec.json.decode(each)["text"] for each in slow.taken]
    assert (len(texts), slow.refused) == (3, 0)  # at most 32 in one
    assert texts[0] == "*Look now:* first: model_out"
    named = {number for number in range(40) if f"m{number}: model_out" in texts[1] + texts[2]}
    assert named == set(range(40))
    assert post.results.count(("ops", "sent")) == 41


async def test_of_more_than_a_message_of_slacks_holds_it_says_how_many_there_are(receiver: Receiver) -> None:
    async with posting(ops=receiver.url) as post:
        post.webhooks = {"ops": WebhookSettings(url=SecretStr(receiver.url), format=Format.SLACK)}
        for number in range(MESSAGES_AT_ONCE):
            await post.open(f"{number}{'x' * 500}")
        await post.deliver()
    [(_, sent)] = receiver.received
    text = msgspec.json.decode(sent)["text"]
    assert len(text) <= 3000
    assert text.endswith("… and 22 more: `holeshot alerts` lists them")


@pytest.mark.parametrize("said", ["120", "Tue, 01 Jan 2030 12:02:15 GMT"])
async def test_a_receiver_that_says_when_it_takes_more_is_not_asked_before(receiver: Receiver, said: str) -> None:
    asked_s: list[float] = []

    async def answer(_: web.Request) -> web.StreamResponse:
        asked_s.append(post.world.elapsed_s)
        return web.Response(status=429 if len(asked_s) == 1 else 200, headers={"retry-after": said})

    receiver.answer = answer
    async with Receiver.running() as other, posting(ops=receiver.url, other=other.url) as post:
        await post.open()
        await post.deliver()
        await post.open("later")
        for _ in range(20):
            await post.deliver()
        assert len(other.received) == 2
    assert asked_s[1] - asked_s[0] >= 120
    assert len(asked_s) == 3


@pytest.mark.parametrize("said", ["soon", "", "-5", "99999999999999999999"])
async def test_a_retry_after_that_says_nothing_stops_no_message(receiver: Receiver, said: str) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=429 if len(receiver.received) == 1 else 200, headers={"retry-after": said})

    receiver.answer = answer
    async with posting(ops=receiver.url) as post:
        await post.open()
        await post.deliver(rounds=300)
    assert post.results == [("ops", "failed"), ("ops", "sent")]


async def test_a_receiver_that_hangs_delays_no_other(receiver: Receiver) -> None:
    receiver.answer = receiver.hang
    async with Receiver.running() as other, posting(timeout_s=HANGS_S, bad=receiver.url, good=other.url) as post:
        for number in range(5):
            await post.open(f"m{number}")
        await post.deliver()
        assert len(other.received) == 5
    assert sorted(post.results) == [("bad", "failed")] * 5 + [("good", "sent")] * 5


async def test_several_that_hang_with_all_that_waits_for_them_delay_no_other(receiver: Receiver) -> None:
    async with (
        Receiver.running() as second,
        Receiver.running() as other,
        posting(timeout_s=HANGS_S, bad=receiver.url, worse=second.url, good=other.url) as post,
    ):
        receiver.answer, second.answer = receiver.hang, second.hang
        for number in range(30):
            await post.open(f"m{number}")
        await post.deliver()
        assert len(other.received) == 30


async def test_what_waits_for_a_dead_one_does_not_keep_others_from_their_turn(receiver: Receiver) -> None:
    receiver.answer = receiver.status(500)
    async with Receiver.running() as other, posting(bad=receiver.url, good=other.url) as post:
        post.world.webhooks = ("bad",)
        for number in range(2 * MESSAGES_AT_ONCE):
            await post.open(f"m{number}")
        post.world.webhooks = ("bad", "good")
        await post.open("late")
        await post.deliver()
        assert len(other.received) == 1


@pytest.mark.parametrize("kind", ["hangs", "breaks", "is not what its headers say", "is in an unknown encoding"])
async def test_the_status_of_an_answer_is_enough_whatever_its_body_does(receiver: Receiver, kind: str) -> None:
    async def head_only(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-length": "1000"})
        await response.prepare(request)
        if kind == "breaks":
            assert request.transport is not None
            request.transport.close()
            return response
        return await receiver.hang(request)

    async def encoded(_: web.Request) -> web.StreamResponse:
        coding = "gzip" if kind == "is not what its headers say" else "br"
        return web.Response(body=b"not that", headers={"content-encoding": coding})

    receiver.answer = head_only if kind in {"hangs", "breaks"} else encoded
    async with posting(timeout_s=HANGS_S, ops=receiver.url) as post:
        await post.open()
        await post.deliver()
    assert post.results == [("ops", "sent")]


async def test_what_was_not_said_before_the_database_came_back_is_said_before_its_end(receiver: Receiver) -> None:
    receiver.answer = receiver.status(500)
    async with posting(ops=receiver.url) as post:
        world = post.world
        world.book.is_away = True
        for _ in range(30):  # so its next try is far away
            await post.open()
            await post.delivery.deliver()
        receiver.received.clear()
        receiver.answer = receiver.status(200)
        world.book.is_away = False
        world.sources[0].now = []
        for _ in range(120):
            await world.run(15)
            await post.delivery.deliver()
    said = [msgspec.json.decode(body) for _, body in receiver.received]
    assert [each["type"] for each in said] == ["alert.opened", "alert.resolved"]
    assert len({each["data"]["id"] for each in said}) == 1


@pytest.mark.parametrize(
    ("url", "answer"),
    [
        ("http://nobody.invalid/hook/T0P-S3CRET", "the name of its host is not known"),
        (f"http://127.0.0.1:{free_port()}/hook/T0P-S3CRET", "no connection: ECONNREFUSED"),
    ],
    ids=["no name", "no port"],
)
async def test_a_receiver_that_is_not_there_is_named_without_its_address(url: str, answer: str) -> None:
    async with posting(ops=url) as post:
        post.sender._timeout_s = 10
        await post.open()
        with structlog.testing.capture_logs() as logged:
            await post.deliver()
    assert [each["answer"] for each in logged] == [answer]
    assert "S3CRET" not in str(logged)


@pytest.mark.parametrize(
    "host",
    [
        *("169.254.169.254", "2852039166", "0251.0376.0251.0376", "169.254.43518", "100.100.100.200"),
        *("[::ffff:169.254.169.254]", "[64:ff9b::a9fe:a9fe]", "[2002:a9fe:a9fe::]", "[fd00:ec2::254]", "[fe80::1]"),
    ],
)
async def test_nothing_is_sent_to_an_address_where_clouds_give_credentials_away(host: str) -> None:
    async with posting(ops=f"http://{host}/hook/T0P-S3CRET") as post:
        await post.open()
        with structlog.testing.capture_logs() as logged:
            await post.deliver()
    no_address = "its URL has no host that can be used"  # of numbers that are no address in their usual form
    metadata = "not sent: its host is an address of this machine's network or of the cloud's metadata"
    assert [each["answer"] for each in logged] == [no_address if host[0] in "02" or host.count(".") == 2 else metadata]


async def test_a_message_goes_through_the_proxy_of_the_environment_unless_its_receiver_is_listed(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = urlsplit(receiver.url)
    monkeypatch.setenv("HTTP_PROXY", f"http://us%65r:pass@{proxy.netloc}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with Receiver.running() as direct, posting(ops="http://nobody.invalid/hook", own=direct.url) as post:
        await post.open()
        await post.deliver()
        [(headers, _)] = receiver.received
        [(own, _)] = direct.received
    assert sorted(post.results) == [("ops", "sent"), ("own", "sent")]
    assert headers["host"] == "nobody.invalid"
    assert headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
    assert "proxy-authorization" not in own


async def test_a_message_over_tls_is_sent_through_a_tunnel_that_knows_the_password(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = b"HTTP/1.1 403 No\r\ncontent-length: 0\r\n\r\n"
    tunnel = TunnelProxy(urlsplit(receiver.url).port or 0, answer=refused, closing=True)
    async with tunnel.serving(), posting(ops="https://nobody.invalid/hook/T0P-S3CRET") as post:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.url.replace("://", "://user:pass@"))
        await post.open()
        with structlog.testing.capture_logs() as logged:
            await post.deliver()
    [head] = tunnel.heads
    assert head.startswith(b"CONNECT nobody.invalid:443 ")
    assert b"proxy-authorization: basic dxnlcjpwyxnz\r\n" in head.lower()
    assert [each["answer"] for each in logged] == ["the proxy answered 403"]
    assert b"S3CRET" not in head


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0251.0376.0251.0376", "[fd00:ec2::254]"])
async def test_no_proxy_is_asked_for_an_address_where_clouds_give_credentials_away(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", receiver.url)
    async with posting(ops=f"http://{host}/hook") as post:
        await post.open()
        with structlog.testing.capture_logs() as logged:
            await post.deliver()
    assert receiver.received == []
    assert [each["answer"].partition(":")[0] for each in logged] == ["not sent"]


async def test_a_proxy_that_is_not_supported_or_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async with posting(ops="http://nobody.invalid/hook") as post:
        await post.open()
        with structlog.testing.capture_logs() as logged:
            monkeypatch.setenv("HTTP_PROXY", "socks5://127.0.0.1:1")
            await post.deliver()
            monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
            await post.deliver(rounds=2)
    first, *others = [each["answer"] for each in logged]
    assert first.startswith("not sent: HTTP_PROXY must be http://host:port")
    assert set(others) == {"no connection to the proxy: ECONNREFUSED"}


async def test_a_connection_that_drops_and_one_that_hangs_are_failures_in_words(receiver: Receiver) -> None:
    async with posting(timeout_s=HANGS_S, ops=receiver.url) as post:
        await post.open()
        with structlog.testing.capture_logs() as logged:
            receiver.answer = receiver.drop
            await post.deliver(every_s=3600)
            receiver.answer = receiver.hang
            await post.deliver()
    answers = [each["answer"] for each in logged]
    assert answers == ["the connection was closed without an answer", f"no answer within {HANGS_S:g} s"]


async def test_a_gateway_that_stops_while_a_receiver_hangs_leaves_the_message_to_the_next_one(
    receiver: Receiver,
) -> None:
    receiver.answer = receiver.hang
    async with posting(ops=receiver.url) as post:
        world = post.world
        world.sources[0].now = [condition()]
        alerts = AlertTasks(
            world.watches[0],
            post.delivery,
            sender=post.sender,
            book=world.book,
            own=world.owns[0],
            enabled=lambda: True,
        )
        alerts.start()
        async with asyncio.timeout(PATIENCE_S):
            await receiver.asked.wait()
            await alerts.close()
        receiver.answer = receiver.status(200)
        await post.deliver()
        assert len(receiver.received) == 1  # it may still be on its way
        world.elapsed_s += LEASE.total_seconds()
        await post.deliver()
    assert len(receiver.received) == 2
    assert len(set(receiver.ids)) == 1
    assert post.results == [("ops", "sent")]


async def test_no_secret_is_in_what_is_logged_sent_or_stored(receiver: Receiver) -> None:
    path = urlsplit(receiver.url).path
    receiver.answer = receiver.status(400, body=f"bad {receiver.url} {SECRET}, no {path}")
    async with posting(ops=receiver.url) as post:
        await post.open()
        with structlog.testing.capture_logs() as logged:
            await post.deliver(rounds=3, every_s=3600)
        message = await post.world.book.take_due(
            post.world.now + timedelta(days=2), lease=LEASE, webhooks=post.webhooks
        )
        answered = await post.sender.send(post.webhooks["ops"], message[0])
    seen = [logged, receiver.received, message, answered, post.webhooks]
    assert not [word for word in ("T0P-S3CRET", SECRET, SECRET.removeprefix("whsec_")) if word in repr(seen)]
    assert answered.reply == "bad *** ***, no ***"


def _alert(**changes: Any) -> Alert:
    world = World()
    made = Alert(
        id="a", kind=AlertKind.SPOOL, subject="here", severity=Severity.PAGE, summary="full", figures={},
        sql="select 1", opened_at=world.now, seen_at=world.now, replica="here",
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def test_events_have_names_that_receivers_can_route_by() -> None:
    assert [str(each) for each in AlertEvent] == ["alert.opened", "alert.resolved", "alert.test"]
    assert _alert().key == "spool:here"
