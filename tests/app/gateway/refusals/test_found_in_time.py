"""What is dead is found after as many failures as ever, whoever calls; `test_weak_keys.py` has the other side."""

from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from time import monotonic
from typing import Any

import msgspec
import pytest

from providers.simulator import Drop, ErrorEvent, Headers, Status, Step, answer
from tests.app.gateway.key_desk import bearer, sha256
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve, single

STRIKES = 4  # that open a breaker
LONG_S = 600.0  # after which the attempts of a client are forgotten
TEN = tuple(f"client-{number}" for number in range(10))


class Fault(msgspec.Struct, frozen=True):
    """What a dead deployment answers, and how many calls of all clients may meet it."""

    script: Sequence[Step]
    most: int
    state: str


def error(message: str, code: str | None = None, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


FAULTS: Mapping[str, Fault] = {
    "a dead key, OpenAI's": Fault([Status(401, error("Incorrect API key provided", "invalid_api_key"))], 1, "out"),
    "a dead key, Google's": Fault(
        [Status(400, {"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT",
         "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}})],
        1, "out",
    ),
    "a dead key, said within an answer": Fault(
        [ErrorEvent("Incorrect API key provided", "invalid_api_key")], 1, "out"
    ),
    "a spent account, OpenAI's": Fault(
        [Status(429, error("You exceeded your current quota", "insufficient_quota", "insufficient_quota"))], 1, "out"
    ),
    "a spent account, DeepSeek's": Fault([Status(402, error("Insufficient Balance"))], 1, "out"),
    "a spent account, Anthropic's": Fault(
        [Status(400, {"type": "error", **error("Your credit balance is too low to access the Anthropic API.")})],
        1, "out",
    ),
    "a model that is gone": Fault([Status(404, error("The model does not exist", "model_not_found"))], 1, "out"),
    "a vendor that fails": Fault([Status(500, error("Internal error"))], STRIKES, "open"),
    "a vendor behind a proxy that fails": Fault([Status(502, b"Bad Gateway")], STRIKES, "open"),
    "a vendor that hangs up": Fault([Headers(), Drop()], STRIKES, "open"),
    "a vendor that fails within its answers": Fault([ErrorEvent("overloaded")], STRIKES, "open"),
}  # fmt: skip
# Who was there, for how many seconds they have been silent, and who calls now.
CLIENTS: Mapping[str, tuple[Sequence[str], float, Sequence[str]]] = {
    "clients without keys": ((), 0.0, ()),
    "one": (TEN[:1], 0.0, TEN[:1]),
    "two in turn": (TEN[:2], 0.0, TEN[:2]),
    "ten in turn": (TEN, 0.0, TEN),
    "one beside nine silent ones": (TEN, LONG_S, TEN[:1]),
    "one that is new": (TEN[1:], LONG_S, TEN[:1]),
    "one beside nine that were there just now": (TEN, 0.0, TEN[:1]),
}


async def answered(running: RunningGateway, client: str | None) -> None:
    async with running.chat(bearer(f"hs-{client}") if client else {}) as response:
        assert response.status == 200, await response.text()
        await response.read()


@pytest.mark.parametrize("who", CLIENTS)
@pytest.mark.parametrize("what", FAULTS)
async def test_what_is_dead_is_found_in_as_many_calls_as_ever(serve: Serve, what: str, who: str) -> None:
    fault, (were, silent_s, now) = FAULTS[what], CLIENTS[who]
    passed_s = 0.0
    config = {**single(), "clock": lambda: monotonic() + passed_s}
    if were:
        config["clients"] = {name: {"key_sha256": sha256(f"hs-{name}")} for name in {*were, *now}}
    async with serve(alpha=answer("well"), beta=answer("well"), in_one_minute=True, config=config) as running:
        alpha = running["alpha"]
        running.prefer("alpha", "beta", first_s=5.0)
        for client in tuple(were or (None,)) * 3:
            await answered(running, client)
        assert len(alpha.received) == 3 * (len(were) or 1)
        passed_s += silent_s
        alpha.script, before = fault.script, len(alpha.received)
        for client in islice(cycle(now or (None,)), 3 * STRIKES):
            await answered(running, client)
        assert len(alpha.received) - before == fault.most
        states = {row.deployment: row.state for row in running.gateway.steering.leaderboard(MODEL).deployments}
        just_now = who.endswith("just now") and fault.most > 1
        assert states == {"alpha/m": "ok" if just_now else fault.state, "beta/m": "ok"}
        # What one alone has met of several, others find by two more, whoever of them comes.
        for client in islice(cycle(were), 3 * STRIKES if were else 0):
            await answered(running, client)
        assert len(alpha.received) - before <= fault.most + (2 if fault.most > 1 else 0)


@pytest.mark.parametrize("mode", ["auto", "race", "hedge", "single"])
@pytest.mark.parametrize("what", ["a dead key, OpenAI's", "a model that is gone"])
async def test_who_alone_has_a_model_is_asked_once_in_each_call_and_answers_as_soon_as_it_can(
    serve: Serve, what: str, mode: str
) -> None:
    models = {MODEL: {"deployments": ["alpha/m"], "race": {"mode": mode}}}
    async with serve(alpha=FAULTS[what].script, config={"models": models}) as running:
        alpha = running["alpha"]
        for number in range(4):
            before = len(alpha.received)
            async with running.chat() as response:
                assert response.status in {404, 424}
                await response.read()
            assert len(alpha.received) == before + 1 or not number, number
        alpha.script = answer("well")
        await answered(running, None)


@pytest.mark.parametrize("mode", ["auto", "race", "hedge", "single"])
async def test_where_all_are_out_each_call_asks_them_until_one_answers(serve: Serve, mode: str) -> None:
    models = {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": mode}}}
    dead, gone = FAULTS["a dead key, OpenAI's"].script, FAULTS["a model that is gone"].script
    async with serve(alpha=dead, beta=gone, config={"models": models}) as running:
        for number in range(1, 4):
            async with running.chat() as response:
                assert response.status == 424
                await response.read()
            assert [len(running[name].received) for name in ("alpha", "beta")] == [number, number]
        running["beta"].script = answer("well")
        await answered(running, None)


async def test_who_is_out_is_looked_at_once_a_minute_where_another_answers(serve: Serve) -> None:
    passed_s = 0.0
    config = {
        "clock": lambda: monotonic() + passed_s,
        "models": {MODEL: {"deployments": ["alpha/m", "beta/m"], "race": {"mode": "auto", "budget": 1.0}}},
    }
    gone = FAULTS["a model that is gone"].script
    async with serve(alpha=gone, beta=answer("well"), in_one_minute=True, config=config) as running:
        running.prefer("alpha", "beta", first_s=5.0)
        asked = []
        for minute in range(3):
            passed_s = 61.0 * minute
            for _ in range(5):
                await answered(running, None)
            asked.append(len(running["alpha"].received))
    assert asked == [1, 2, 3]
