"""What a refusal has taught one replica, another knows through a real Redis."""

import asyncio
import copy
import json
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from redis.asyncio import Redis
from typer.testing import CliRunner

from gateway.app.shared_facts import KEY, SharedFacts
from gateway.cli.main import application
from gateway.topology import Nodes
from providers import Fact, Facts, Kind, LearntFacts, Met
from providers.simulator import Raw, ScriptedProvider, Status
from tests.app.gateway.apis.test_dialects import speaking
from tests.app.gateway.refusals.test_refused_fields import ANSWERS, QUESTION, refused, refusing, told
from tests.app.gateway.refusals.test_who_taught_it import clients, said
from tests.app.gateway.responses.test_moved_conversations import ANSWERS as OPENED
from tests.app.gateway.responses.test_moved_conversations import RESPONSES, asked, marked, reads
from tests.app.gateway.running_gateway import MODEL, RunningGateway, serving
from tests.patience import eventually, until

WHOLE = {"messages": QUESTION, "response_format": {"type": "json_object"}}
EFFORT = Fact(Kind.FIELD, "reasoning_effort", dialect="chat")


async def test_another_replica_does_not_send_what_was_refused_once(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    asked = {"messages": QUESTION, "reasoning_effort": "low"}
    async with AsyncExitStack() as stack:
        one, other = await _two(stack, tmp_path, redis_url, ["alpha"])
        for each in (one, other):
            each["alpha"].answers = refusing("reasoning_effort")
        assert await told(one, asked) == (200, "reasoning_effort")
        await eventually(lambda: redis.hgetall(KEY))
        await until(lambda: _known(other) == (EFFORT,))
        assert await told(other, asked) == (200, "reasoning_effort")
        assert len(other["alpha"].received) == 1
        assert 0 < await redis.ttl(KEY) <= 86_400


async def test_what_others_wrote_and_what_has_ended_is_left_out(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    def named(**changes: str) -> str:
        return msgspec.json.encode(("alpha", "m", msgspec.structs.replace(EFFORT, **changes))).decode()

    garbage: dict[Any, Any] = {"x": "1", named(): "soon", '["alpha","m",{}]': "9e99", named(field="a" * 999): "9e99"}
    swapped = named(kind=Kind.VALUE, instead='1},"model":{', value='"low"')
    await redis.hset(KEY, mapping={**garbage, swapped: "9e99", named(field="user"): "9e99", named(field="n"): "1"})
    async with serving(tmp_path, {"alpha": None}, redis_url=redis_url) as running:
        known = running.gateway.fleets.learnt("alpha")
        assert known is not None
        await until(lambda: bool(known.of("m")))
        assert [fact.field for fact in known.of("m")] == ["user"]
        await eventually(lambda: _lacks(redis, named(field="n")))
        running["alpha"].answers = refusing("user")
        assert await told(running, {"messages": QUESTION, "user": "u"}) == (200, "user")
        assert len(running["alpha"].received) == 1


async def _two(
    stack: AsyncExitStack, folder: Path, redis_url: str, names: Sequence[str], **config: Any
) -> list[RunningGateway]:
    """Start two replicas."""
    return [
        await stack.enter_async_context(
            serving(folder / name, dict.fromkeys(names), **copy.deepcopy({"redis_url": redis_url, **config}))
        )
        for name in ("one", "other")
    ]


def _known(running: RunningGateway, client: str | None = None) -> Facts:
    """Return what a replica knows of alpha's model, for a client."""
    known = running.gateway.fleets.learnt("alpha")
    assert known is not None
    return known.of("m", client)


async def _facts(redis: Redis) -> list[str]:
    """Return the names of the entries in Redis."""
    return [str(name) for name in await redis.hkeys(KEY) if name != "version"]


async def _is_empty(redis: Redis) -> bool:
    return not await _facts(redis)


async def _lacks(redis: Redis, name: str) -> bool:
    return not await redis.hexists(KEY, name)


async def test_a_fact_that_was_wrong_is_taken_back(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    said = "Unsupported parameter: '{}' is not supported with this model."
    async with serving(tmp_path, {"alpha": None}, redis_url=redis_url) as running:
        for refused in ("max_tokens", "max_completion_tokens"):
            running["alpha"].answers = refusing(refused, said=said)
            assert await told(running, {"messages": QUESTION, "max_tokens": 9}) == (200, None)
        await eventually(lambda: _only(redis, "max_completion_tokens"))


async def test_what_is_taken_back_at_once_is_not_told_after_it(redis_url: str, redis: Redis) -> None:
    class Slow:
        """Redis, where the first of two connections is still being opened."""

        pings = 9

        async def call(self, key: str, command: tuple[str, ...]) -> Any:
            pings, self.pings = self.pings, 0
            for _ in range(pings):
                await redis.ping()
            return await redis.execute_command(*command)  # type: ignore[no-untyped-call]

    tasks: list[asyncio.Task[None]] = []
    shared = SharedFacts(
        cast("Nodes", Slow()),
        lambda _: None,
        lambda telling: tasks.append(asyncio.create_task(telling)),
        unix_clock=time.time,
    )
    shared.tell("alpha", "m", EFFORT, 9e99, Met(9e99, 0.0))
    shared.tell("alpha", "m", EFFORT, 0.0, Met(9e99, 0.0))
    await asyncio.gather(*tasks)
    assert await _facts(redis) == []


async def test_a_fact_in_place_of_another_is_seen_at_the_next_look(redis_url: str, redis: Redis) -> None:
    user, tier = (msgspec.structs.replace(EFFORT, field=name) for name in ("user", "service_tier"))
    known, tasks = LearntFacts(), list[asyncio.Task[None]]()
    async with aclosing(Nodes(redis_url)) as nodes:
        shared = SharedFacts(
            nodes,
            lambda _: known,
            lambda telling: tasks.append(asyncio.create_task(telling)),
            unix_clock=time.time,
        )
        shared.tell("alpha", "m", EFFORT, 9e99, Met(9e99, 0.0))
        await asyncio.gather(*tasks)
        await shared.look()
        assert known.of("m") == (EFFORT,)
        shared.tell("alpha", "m", EFFORT, 0.0, Met(9e99, 0.0))
        shared.tell("alpha", "m", user, 9e99, Met(9e99, 0.0))
        await asyncio.gather(*tasks)
        await shared.look(everything=False)
        assert set(known.of("m")) == {EFFORT, user}
        # A replica of the version before does not count its changes.
        await redis.hset(KEY, msgspec.json.encode(("alpha", "m", tier)).decode(), "9e99")
        await shared.look(everything=False)
        assert set(known.of("m")) == {EFFORT, user, tier}


async def test_another_replica_asks_whole_where_streaming_was_refused(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    said = "`response_format` does not support streaming"
    async with AsyncExitStack() as stack:
        one, other = await _two(stack, tmp_path, redis_url, ["alpha"])
        for each in (one, other):
            each["alpha"].answers = lambda body: refused(said) if body["stream"] else ANSWERS["chat"]
        assert (await told(one, WHOLE))[0] == 200
        await until(lambda: bool(_known(other)))
        assert [fact.kind for fact in _known(other)] == [Kind.STREAM]
        assert (await told(other, WHOLE))[0] == 200
        assert len(other["alpha"].received) == 1


async def test_a_refusal_to_stream_is_taken_back_where_whole_answers_are_refused_too(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    async with serving(tmp_path, {"alpha": None}, redis_url=redis_url) as running:
        running["alpha"].answers = lambda body: (
            refused("streaming is not supported") if body["stream"] else ANSWERS["chat"]
        )
        assert (await told(running, WHOLE))[0] == 200
        await eventually(lambda: redis.hgetall(KEY))
        running["alpha"].script, running["alpha"].answers = refused("too hot"), None
        assert (await told(running, WHOLE))[0] == 400
        await eventually(lambda: _is_empty(redis))


async def test_another_replica_knows_who_cannot_read_whose_reasoning(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    async def ask(replica: RunningGateway, body: Any = None) -> None:
        async with replica.post(body or asked(RESPONSES), path=RESPONSES.path) as response:
            await response.read()
        assert response.status == 200

    config: dict[str, Any] = {
        "providers": {name: speaking("responses") for name in ("alpha", "beta")},
        "models": {MODEL: {"race": {"mode": "single"}}},
    }
    async with AsyncExitStack() as stack:
        one, other = await _two(stack, tmp_path, redis_url, ["alpha", "beta"], **config)
        one.prefer("beta", "alpha")
        one["beta"].script = [Raw(OPENED["responses"] + RESPONSES.answer, token=True)]
        await ask(one, {"model": MODEL, "input": QUESTION, "stream": True, "store": False})
        one["alpha"].answers = reads(RESPONSES, own=False)
        one["beta"].answers = lambda _: [Status(503, {})]
        await ask(one)  # without the reasoning
        await until(lambda: [fact.kind for fact in _known(other)] == [Kind.REASONING])
        assert [fact.field for fact in _known(other)] == ["beta/m"]
        other["alpha"].answers = reads(RESPONSES, own=False)
        other["beta"].answers = lambda _: [Status(503, {})]
        await ask(other)
        assert [marked(each.body) for each in other["alpha"].received] == [False]


async def test_check_tells_what_all_replicas_have_learnt(tmp_path: Path, redis_url: str, redis: Redis) -> None:
    streams = Fact(Kind.STREAM, "chat", value="response_format=json_object")
    names = [
        msgspec.json.encode((provider, "m", fact)).decode()
        for provider, fact in (("alpha", EFFORT), ("alpha", streams), ("gone", EFFORT))
    ]
    await redis.hset(KEY, mapping=dict.fromkeys(names, "9e99"))
    async with ScriptedProvider(models=("m",)) as alpha:
        settings = {
            "providers": {"alpha": {"base_url": alpha.base_url}},
            "models": {MODEL: {"deployments": ["alpha/m"]}},
        }
        file = tmp_path / "gateway.yaml"
        file.write_text(json.dumps({**settings, "redis_url": redis_url}))
        run = await asyncio.to_thread(
            CliRunner().invoke, application(), ["check", "--live", "--json", "--config", str(file)]
        )
    told = json.loads(run.stdout)["warnings"]
    assert any(
        "alpha/m refuses reasoning_effort, streaming, in chat with response_format=json_object" in each for each in told
    )
    assert not any("gone/m" in each for each in told)


async def test_who_met_it_goes_with_a_fact_to_other_replicas_and_through_a_restart(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    config = {**clients("ann", "bob", "cid"), "redis_url": redis_url}
    async with AsyncExitStack() as stack:
        one, other = [
            await stack.enter_async_context(serving(tmp_path / name, {"alpha": None}, **copy.deepcopy(config)))
            for name in ("one", "other")
        ]
        for each in (one, other):
            each["alpha"].answers = refusing("reasoning_effort")
        assert await said(one, "ann") == (200, "reasoning_effort")
        await until(lambda: _known(other, "ann") == (EFFORT,))
        assert await said(other, "ann") == (200, "reasoning_effort")
        assert len(other["alpha"].received) == 1
        assert _known(other, "bob") == ()
        assert await said(other, "bob") == (200, "reasoning_effort")
        assert len(other["alpha"].received) == 3
        await until(lambda: _known(one, "cid") == (EFFORT,))
        assert await said(one, "cid") == (200, "reasoning_effort")
        assert len(one["alpha"].received) == 3
    async with serving(tmp_path / "again", {"alpha": None}, **copy.deepcopy(config)) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        await until(lambda: _known(running, "cid") == (EFFORT,))
        assert await said(running, "cid") == (200, "reasoning_effort")
        assert len(running["alpha"].received) == 1


async def test_what_an_operator_has_forgotten_in_one_replica_is_forgotten_in_all(
    tmp_path: Path, redis_url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.shared_facts.ALL_EVERY", 10**9)  # only what has changed is read
    async with AsyncExitStack() as stack:
        one, other = await _two(stack, tmp_path, redis_url, ["alpha"])
        one["alpha"].answers = refusing("reasoning_effort")
        assert await told(one, {"messages": QUESTION, "reasoning_effort": "low"}) == (200, "reasoning_effort")
        await until(lambda: _known(other) == (EFFORT,))
        learnt = one.gateway.fleets.learnt("alpha")
        assert learnt is not None
        assert learnt.drop("m", EFFORT)
        await until(lambda: _known(other) == ())
        assert await told(one, {"messages": QUESTION, "reasoning_effort": "low"}) == (200, "reasoning_effort")
        await until(lambda: _known(other) == (EFFORT,))


async def test_a_fact_of_a_replica_that_does_not_tell_who_met_it_changes_nothing_for_clients(
    tmp_path: Path, redis_url: str, redis: Redis
) -> None:
    name = msgspec.json.encode(("alpha", "m", EFFORT)).decode()
    await redis.hset(KEY, name, "9e99")
    config = {**clients("ann", "bob"), "redis_url": redis_url}
    async with serving(tmp_path, {"alpha": None}, **config) as running:
        await until(lambda: _known(running) == (EFFORT,))
        for who in ("ann", "bob"):
            assert await said(running, who) == (200, None)


async def _only(redis: Redis, field: str) -> bool:
    return [msgspec.json.decode(name)[2]["field"] for name in await _facts(redis)] == [field]
