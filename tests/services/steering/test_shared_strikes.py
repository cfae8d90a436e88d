"""Replicas that tell each other of failing deployments over one real Redis. Each sync is driven by hand."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from itertools import cycle, product

import msgspec
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from gateway.steering import STRIKES, STRIKES_KEY, RedisBoard, redis_board
from gateway.steering.constants import CLIENTS_HALF_LIFE_S, KEY_EXPIRY_S, REPORT_AGE_S, REPORT_KEPT_S, WELL_S
from gateway.steering.outages import OutageReport, Strike
from gateway.steering.redis_board import STRIKING_KEY
from gateway.topology import connect
from providers import ErrorKind
from tests.patience import PATIENCE_S
from tests.support.servers import free_port
from tests.unit.steering.inside.replica import Replica, later, struck, well
from tests.unit.steering.inside.test_health_by_client import CERTAIN, TEN, busy, crashed, uses


class Shared(Replica):
    """A replica with a board in Redis."""

    def __init__(self, redis_url: str) -> None:
        super().__init__()
        self.redis_board = RedisBoard(connect(redis_url, PATIENCE_S), unix_clock=self.unix_s, strikes=self.strikes)


NewReplica = Callable[[], Shared]


@pytest.fixture
async def replica(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[NewReplica]:
    """Replicas that are patient: on a busy machine a round may take longer than they allow it."""
    monkeypatch.setattr(redis_board, "REDIS_TIMEOUT_S", PATIENCE_S)
    async with AsyncExitStack() as stack:

        def make() -> Shared:
            made = Shared(redis_url)
            well(made)
            stack.push_async_callback(made.redis_board.close)
            return made

        yield make


async def sync(*replicas: Shared) -> None:
    for replica in replicas:
        assert await replica.redis_board.sync()


def states(*replicas: Replica, deployment: str = "a") -> list[str | None]:
    return [replica.state(deployment) for replica in replicas]


async def test_two_replicas_that_see_an_outage_add_up(replica: NewReplica) -> None:
    one, other = replica(), replica()
    struck(one, STRIKES - 1)
    struck(other, 1)
    await sync(one, other)
    assert states(one, other) == ["ok", "open"]
    await sync(one)
    assert states(one, other) == ["open", "open"]


async def test_a_third_heeds_what_two_have_seen_within_two_rounds(replica: NewReplica) -> None:
    one, other, third = replica(), replica(), replica()
    await sync(third, other, one)
    struck(one, STRIKES)
    struck(other, STRIKES)
    later(1.0, one, other, third)
    await sync(third, other, one)  # in the worst order
    assert states(third) == ["ok"]
    later(1.0, one, other, third)
    await sync(third)
    assert states(one, other, third) == ["open"] * 3
    assert {third.state(name) for name in "bcdef"} == {"ok"}


async def test_one_alone_opens_its_own_breaker_only(replica: NewReplica) -> None:
    one, other = replica(), replica()
    struck(one, STRIKES)
    await sync(one, other, one, other)
    assert states(one, other) == ["open", "ok"]


@pytest.mark.parametrize(
    ("were", "silent_s", "now"),
    [
        (TEN[:1], 0.0, TEN[:1]),
        (TEN[:2], 0.0, TEN[:2]),
        (TEN, 0.0, TEN),
        (TEN, 10.0 * CLIENTS_HALF_LIFE_S, TEN[:1]),
        (TEN[1:], 10.0 * CLIENTS_HALF_LIFE_S, TEN[:1]),
    ],
    ids=["one client", "two", "ten", "one beside nine silent ones", "one that is new"],
)
async def test_a_dead_vendor_is_found_by_as_many_failures_at_two_replicas_as_ever(
    replica: NewReplica, were: list[str], silent_s: float, now: list[str]
) -> None:
    one, other, third = replicas = replica(), replica(), replica()
    for each in replicas:
        busy(each, *were)
    later(WELL_S + 1.0 + silent_s, *replicas)  # the last answer is no news
    clients = cycle(now)
    for met, client in zip((one, one, other, other), clients, strict=False):
        assert states(one, other) == ["ok", "ok"]
        met.fail("a", status_code=500, client=client)
        met.win("b", client=client)
    for _ in range(2):
        await sync(*replicas)
    assert states(one, other, third) == ["open"] * 3
    assert not any(uses(third, client) for client in (*TEN, None))


@pytest.mark.parametrize("what", CERTAIN)
@pytest.mark.parametrize("clients", [TEN[:1], TEN], ids=["one client", "ten"])
async def test_what_no_request_can_cause_takes_each_replica_one_call(
    replica: NewReplica, what: str, clients: list[str]
) -> None:
    one, other = replicas = replica(), replica()
    for each in replicas:
        busy(each, *clients)
        CERTAIN[what](each, clients[0])
        await sync(*replicas)
        assert each.state("a") != "ok"
    assert not any(uses(each, client) for each in replicas for client in TEN)
    assert {each.state(name) for each, name in product((one, other), "bcdef")} == {"ok"}


async def test_what_one_of_several_clients_meets_at_all_replicas_takes_nothing_from_the_others(
    replica: NewReplica,
) -> None:
    replicas = [replica() for _ in range(3)]
    for each in replicas:
        busy(each, "mallory", "fair", "other")
    later(WELL_S + 1.0, *replicas)
    for each in replicas * 2:
        crashed(each, "mallory")
        each.win("b", client="mallory")
        await sync(*replicas)
    assert states(*replicas) == ["ok"] * 3
    for each in replicas:
        assert (uses(each, "mallory"), uses(each, "fair"), uses(each, "other")) == (False, True, True)


async def test_a_replica_whose_network_is_cut_opens_nothing_elsewhere(replica: NewReplica) -> None:
    cut, other, third = replica(), replica(), replica()
    for _ in range(STRIKES):
        for name in cut.deployments:
            cut.fail(name, ErrorKind.CONNECT_TIMEOUT)
        struck(other, 1)  # which one sees fail too
        await sync(cut, other, third)
        later(1.0, cut, other, third)
    await sync(cut, other, third)
    assert {cut.state(name) for name in cut.deployments} == {"open"}
    assert states(other, third) == ["open", "ok"]
    assert {each.state(name) for each, name in product((other, third), "bcdef")} == {"ok"}


async def test_a_replica_that_was_just_answered_ignores_the_others(replica: NewReplica) -> None:
    one, other, third = replica(), replica(), replica()
    struck(one, STRIKES)
    struck(other, STRIKES)
    later(1.0, one, other, third)
    third.win("a")
    await sync(one, other, third)
    assert states(one, other, third) == ["open", "open", "ok"]


async def test_a_replica_that_is_gone_is_heard_no_more_and_its_report_removed(
    replica: NewReplica, redis: Redis
) -> None:
    gone, other, third = replica(), replica(), replica()
    struck(gone, STRIKES)
    await sync(gone)
    later(REPORT_AGE_S + 1.0, other, third)
    struck(other, 1)
    await sync(other, third)
    assert states(other, third) == ["ok", "ok"]
    assert await redis.hlen(STRIKES_KEY) == 3
    later(REPORT_KEPT_S, other, third)
    await sync(other, third, other, third)
    assert await redis.hlen(STRIKES_KEY) == 2
    assert 0 < await redis.ttl(STRIKES_KEY) <= KEY_EXPIRY_S


async def test_without_redis_each_counts_for_itself(replica: NewReplica) -> None:
    away = Shared(f"redis://127.0.0.1:{free_port()}/0")
    well(away)
    struck(away, STRIKES - 1)
    with capture_logs():
        assert not await away.redis_board.sync()
    assert states(away) == ["ok"]
    struck(away, 1)
    assert states(away) == ["open"]
    with capture_logs():
        await away.redis_board.close()


@pytest.mark.parametrize(
    "text",
    [
        "text", "", "{}", "[]", "null", b"\xff\xfe", "9" * 5000, '{"at_s": NaN}', '{"at_s": 1e400}', '{"at_s": "now"}',
        '{"at_s": NOW, "strikes": {"a": [-9, NOW]}}',
        '{"at_s": NOW, "strikes": {"a": [0, NOW]}}',
        '{"at_s": NOW, "strikes": {"a": [4, 1e300]}}',
        '{"at_s": NOW, "strikes": {"a": [4, -1e300]}}',
        '{"at_s": NOW, "strikes": {"a": [4]}}', '{"at_s": NOW, "strikes": {"a": 4}}',
        '{"at_s": NOW, "strikes": {"a": [1e9, NOW]}}', '{"at_s": NOW, "strikes": []}',
        '{"at_s": NOW, "well": [1]}', '{"at_s": 1e300, "strikes": {"a": [4, NOW]}}',
    ],
)  # fmt: skip
async def test_nothing_that_stands_there_opens_a_breaker_or_stops_the_board(
    replica: NewReplica, redis: Redis, text: str | bytes
) -> None:
    one, other = replica(), replica()
    text = text.replace("NOW", repr(one.unix_s())) if isinstance(text, str) else text
    await redis.hset(STRIKES_KEY, mapping={"@x": text, "@y": text, "z": text})
    with capture_logs():
        await sync(one, other, one)
    assert states(one, other) == ["ok", "ok"]
    for each in (one, other):
        struck(each, 2)
    with capture_logs():
        await sync(one, other, one)
    assert states(one, other) == ["open", "open"]  # what is ours still counts


async def test_no_report_counts_for_more_than_a_breaker(replica: NewReplica, redis: Redis) -> None:
    one = replica()
    huge = msgspec.json.encode(OutageReport(one.unix_s(), {"a": Strike(10**9, one.unix_s())}))
    await redis.hset(STRIKES_KEY, "@x", huge)
    await sync(one)
    assert states(one) == ["ok"]  # nor one replica for two


@pytest.mark.parametrize("kind", ["string", "list"])
async def test_a_key_of_another_type_stops_nobody(replica: NewReplica, redis: Redis, kind: str) -> None:
    if kind == "string":
        await redis.set(STRIKES_KEY, "garbage")
    else:
        await redis.rpush(STRIKES_KEY, "garbage")
    one, other = replica(), replica()
    struck(one, STRIKES)
    with capture_logs():
        await sync(one, other, one)
    assert states(one, other) == ["open", "ok"]
    assert one.redis_board.ignored


async def test_reports_are_read_only_while_somebody_has_strikes(replica: NewReplica, redis: Redis) -> None:
    one, other = replica(), replica()
    await sync(one, other)

    async def read() -> list[str]:
        said = (STRIKES_KEY, STRIKING_KEY, "@third", "{}", "0", "0", "900", "20000", "100000", "128")
        found: list[str] = await redis.execute_command("EVAL", redis_board.REPORT, 2, *said)  # type: ignore[no-untyped-call]
        return found

    assert await read() == []
    struck(one, 1)
    await sync(one)
    assert len(await read()) == 6  # field and value of three
    later(REPORT_AGE_S, one, other)  # its strike is no news any more
    later(REPORT_KEPT_S, one, other)
    await sync(one)
    assert await read() == []


@pytest.mark.parametrize(("failing", "state"), [(0.9, "open"), (0.1, "ok")])
async def test_of_very_many_replicas_some_tell_whether_most_fail(
    replica: NewReplica, redis: Redis, failing: float, state: str
) -> None:
    here, number = replica(), 1_000
    now_s = here.unix_s()
    fails = msgspec.json.encode(OutageReport(now_s, {"a": Strike(STRIKES, now_s)}))
    answers = msgspec.json.encode(OutageReport(now_s, well=("a",)))
    reports = {f"@{each}": fails if each < failing * number else answers for each in range(number)}
    await redis.hset(STRIKES_KEY, mapping={field: report.decode() for field, report in reports.items()})
    await redis.hset(STRIKING_KEY, "@0", "1")
    later(REPORT_AGE_S / 4, here)  # since its own last first token
    here.redis_board._reports_read_at_s = here.unix_s()
    await sync(here)
    assert states(here) == [state]
