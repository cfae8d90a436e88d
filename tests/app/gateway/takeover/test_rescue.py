"""A stream that nearly stops is continued by another provider while it runs, over real sockets."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from providers import events
from providers.simulator import Delta, Done, Drop, Finish, Gate, Hang, Raw, Step
from tests.app.gateway.broken_answers import BODIES, ENDS, SAYS, TOKENS, WAYS, pieces, text_in
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import until
from tests.support.moved_time import let_pass

WHOLE = "The quick brown fox jumps over the lazy dog."
BEGUN = "The quick bro"
REST = " brown fox jumps over the lazy dog."
WITHIN_S = 20.0  # much less than what a test has, as its loop is moved by that
AGAIN = 1  # token: " bro" is written twice, and read once
PATHS = {"chat": "chat/completions", "completions": "completions", "messages": "messages", "responses": "responses"}


@pytest.fixture(autouse=True)
def found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find a stream that pauses at all: its beginning comes in one piece, so that it is known what was delivered."""
    monkeypatch.setattr("gateway.racing.rescue.TICK_S", 0.02)
    monkeypatch.setattr("gateway.racing.rescue.PATIENCE_S", 0.02)
    monkeypatch.setattr("gateway.racing.rescue.ONE_GAP", 2.0)


def rescuing(api: str = "chat", *, continues: bool = True, **takeover: Any) -> dict[str, Any]:
    way = WAYS[api] if continues else None
    names = ("alpha", "beta")
    deployments = [{"deployment": f"{name}/m", **({} if way is None else {"continues": way})} for name in names]
    switch = {"when": "always", "slow": {"below_tps": 20, "budget": 1}, **takeover}
    return {
        "providers": {name: {"apis": [api]} for name in names},
        "models": {MODEL: {"race": {"mode": "single", "budget": 0}, "takeover": switch, "deployments": deployments}},
    }


def begun(api: str = "chat", text: str = BEGUN) -> Step:
    """Return the beginning of an answer as one write."""
    return Raw(_joined(SAYS[api]([text]), api, text), token=True)


def _joined(steps: Sequence[Step], api: str, text: str) -> bytes:
    if api != "chat":
        return b"".join(step.data for step in steps if isinstance(step, Raw))
    choices = [{"index": 0, "delta": delta} for delta in ({"role": "assistant", "content": ""}, {"content": text})]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    return b"".join(b"data: %b\n\n" % json.dumps({**head, "choices": [choice]}).encode() for choice in choices)


def rest(api: str = "chat", text: str = REST) -> list[Step]:
    return [*SAYS[api](pieces(text)), *ENDS[api]()]


def known(running: RunningGateway) -> None:
    """Let both be known to be fast."""
    paces = running.gateway.context.services.paces
    for name in running.providers:
        for _ in range(16):
            paces.add(f"{name}/m", 200.0)


class Answer:
    """What a client has of an answer so far."""

    def __init__(self) -> None:
        self.came = b""

    @property
    def text(self) -> str:
        return text_in(self._said)

    @property
    def is_whole(self) -> bool:
        data = [each.data.strip() for each in events(self.came)]
        return data[-1] == b"[DONE]" or self._said[-1].get("type") in {"message_stop", "response.completed"}

    @property
    def usage(self) -> dict[str, Any]:
        found: dict[str, Any] = next(said["usage"] for said in reversed(self._said) if said.get("usage"))
        return found

    @property
    def _said(self) -> list[dict[str, Any]]:
        whole, _, _ = self.came.rpartition(b"\n\n")
        data = [each.data.strip() for each in events(whole + b"\n\n")]
        return [json.loads(each) for each in data if each.startswith(b"{")]

    async def read(
        self, running: RunningGateway, api: str, *, until: str = "", then: asyncio.Event, **fields: Any
    ) -> None:
        """Ask alpha first, and read; set ``then`` once the text has ``until``. ``fields`` are added to the request."""
        path = PATHS[api]
        body = {"model": MODEL, "stream": True, **BODIES[path], "provider": {"order": ["alpha", "beta"]}, **fields}
        async with running.post(body, path=f"/v1/{path}") as response:
            assert response.status == 200
            while block := await response.content.readany():
                self.came += block
                if until in self.text:
                    then.set()


async def asked(running: RunningGateway, api: str = "chat", **options: Any) -> Answer:
    answer = Answer()
    known(running)
    await answer.read(running, api, then=options.pop("then", asyncio.Event()), **options)
    return answer


@pytest.mark.parametrize("api", PATHS)
async def test_another_goes_on_and_no_character_is_wrong(serve: Serve, api: str) -> None:
    async with serve(alpha=[begun(api), Hang()], beta=rest(api), config=rescuing(api)) as running:
        answer = await asked(running, api)
        assert (answer.text, answer.is_whole) == (WHOLE, True)
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == ("rescued", 1, None)
        assert await running.attempts() == [("alpha", "primary", "superseded"), ("beta", "takeover", "won")]
        first, second = await running.rows("select * from attempts order by number")
        assert (second["continues"], call["winner_attempt_id"]) == (first["id"], second["id"])


@pytest.mark.parametrize("own", ["", " ", "\n\n\n"])
@pytest.mark.parametrize("api", PATHS)
async def test_before_the_first_visible_character_another_answers_the_request_itself(
    serve: Serve, api: str, own: str
) -> None:
    config = rescuing(api, continues=False)
    async with serve(alpha=[begun(api, "\n\n"), Hang()], beta=rest(api, own + WHOLE), config=config) as running:
        answer = await asked(running, api)
        assert (answer.text.lstrip(), answer.is_whole) == (WHOLE, True)
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == ("rescued", 1, None)
        assert await running.attempts() == [("alpha", "primary", "superseded"), ("beta", "takeover", "won")]
        (first,), (second,) = running["alpha"].received, running["beta"].received
        assert first.body == second.body


async def test_spaces_alone_cut_no_slow_one(serve: Serve) -> None:
    async with serve(alpha=None, beta=rest(text=" \n"), config=rescuing()) as running:
        running["alpha"].script = [begun(text="\n"), Gate(running["beta"].requested), Delta("Hat"), Finish(), Done()]
        answer = await asked(running)
        assert (answer.text, answer.is_whole) == ("\nHat", True)


async def test_what_the_slow_one_sends_meanwhile_is_dropped_where_another_goes_on(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=rescuing()) as running:
        held = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), held, Delta("XXX"), Hang()]
        running["beta"].script = rest()
        answer = await asked(running)
        assert (answer.text, answer.is_whole) == (WHOLE, True)


async def test_what_was_dropped_is_counted_neither_for_the_client_nor_in_the_ledger(serve: Serve) -> None:
    held = asyncio.Event()
    async with serve(alpha=None, beta=[Gate(held), *rest()], config=rescuing()) as running:
        running["alpha"].script = [begun(), Gate(running["beta"].requested), Delta("X" * 80), Hang()]
        attempts = running.gateway.context.services.tasks
        asking = asyncio.create_task(asked(running, stream_options={"include_usage": True}))
        await until(lambda: any(each.measurement.tokens_so_far > len("X" * 80) / 4 for each in attempts.attempts))
        held.set()
        answer = await asking
        assert (answer.text, answer.is_whole) == (WHOLE, True)
        delivered = -(-len(BEGUN) // 4)
        assert answer.usage["completion_tokens"] == delivered + TOKENS - AGAIN
        assert (await running.call())["completion_tokens"] == answer.usage["completion_tokens"]


@pytest.mark.parametrize(
    "others",
    [[Hang()], rest(text="Sure, here it is"), rest(text=" bro"), [Drop()]],
    ids=["none", "again", "end", "gone"],
)
async def test_a_slow_one_that_ends_first_has_all_of_its_text_sent(serve: Serve, others: list[Step]) -> None:
    async with serve(alpha=None, beta=others, config=rescuing()) as running:
        held = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), held, *[Delta(each) for each in ("wn", " hat")], Finish(), Done()]
        answer = await asked(running)
        assert (answer.text, answer.is_whole) == ("The quick brown hat", True)
        call = await running.call()
        assert (call["takeover"], call["takeovers"], call["error_kind"]) == (None, None, None)
        first, second = await running.attempts()
        assert first == ("alpha", "primary", "won")
        assert second in {("beta", "takeover", outcome) for outcome in ("lost", "superseded", "failed")}


async def test_where_nobody_goes_on_in_time_what_was_held_back_is_sent_and_the_slow_one_goes_on(serve: Serve) -> None:
    more = asyncio.Event()
    async with serve(alpha=None, beta=[Hang()], config=rescuing(within_s=WITHIN_S)) as running:
        held = Gate(running["beta"].requested)
        running["alpha"].script = [begun(), held, Delta("wn"), Gate(more), Delta(" hat"), Finish(), Done()]
        asking = asyncio.create_task(asked(running, until="brown", then=more))
        await running["beta"].requested.wait()
        let_pass(WITHIN_S)
        answer = await asking
        assert (answer.text, answer.is_whole) == ("The quick brown hat", True)
        call = await running.call()
        assert (call["takeover"], call["takeovers"]) == (None, None)
        assert await running.attempts() == [("alpha", "primary", "won"), ("beta", "takeover", "timeout")]


async def test_a_slow_one_that_breaks_meanwhile_is_finished_by_whoever_was_asked(serve: Serve) -> None:
    broken = asyncio.Event()
    async with serve(alpha=None, beta=None, config=rescuing()) as running:
        running["alpha"].script = [begun(), Gate(running["beta"].requested), Drop()]
        running["beta"].script = [Gate(broken), *rest()]
        asking = asyncio.create_task(asked(running))
        await running["alpha"].reach(requests=1, errors=1)
        broken.set()
        answer = await asking
        assert (answer.text, answer.is_whole) == (WHOLE, True)
        call = await running.call()
        assert (call["takeovers"], call["error_kind"]) == (1, None)
        assert running["beta"].counts.requests == 1


async def test_who_goes_on_and_breaks_is_an_answer_that_broke(serve: Serve) -> None:
    seen = asyncio.Event()
    beta = [*SAYS["chat"]([" brown", " fox"]), Gate(seen), Drop()]
    async with serve(alpha=[begun(), Hang()], beta=beta, config=rescuing()) as running:
        running["alpha"].once([begun(), Hang()])
        running["alpha"].once([*SAYS["chat"](pieces(" fox jumps over the lazy dog.")), *ENDS["chat"]()])
        answer = await asked(running, until="fox", then=seen)
        assert (answer.text, answer.is_whole) == (WHOLE, True)
        call = await running.call()
        assert (call["takeover"], call["takeovers"]) == ("finished", 2)


async def test_a_client_that_leaves_ends_both(serve: Serve) -> None:
    async with serve(alpha=[begun(), Hang()], beta=[Hang()], config=rescuing()) as running:
        asking = asyncio.create_task(asked(running))
        await running["beta"].reach(requests=1)
        asking.cancel()
        await running["alpha"].reach(disconnects_mid_stream=1)
        await running["beta"].reach(disconnects_before_first_token=1)
        with pytest.raises(asyncio.CancelledError):
            await asking
        call = await running.call()
        assert (call["status_code"], call["takeovers"]) == (499, None)
        first, second = await running.attempts()
        assert (first[2], second[2]) == ("client_gone", "lost")
