"""One call makes so many requests at most as is set, however many keys, forms, deployments and fallbacks there are."""

from collections.abc import Sequence
from typing import Any

import pytest

from providers.simulator import Status, Step, answer
from tests.app.gateway.keys.test_weak_keys import RING
from tests.app.gateway.refusals.test_refused_fields import QUESTION, refused
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve

MOST_OF_CALL = 15
NAMES = tuple(f"p{number}" for number in range(20))
FIELDS = ("reasoning_effort", "verbosity", "temperature", "top_p", "seed", "presence_penalty")
VALUES: dict[str, Any] = {"reasoning_effort": "low", "verbosity": "low", **dict.fromkeys(FIELDS[2:], 1)}


def one_after_the_other(body: Any) -> Sequence[Step]:
    """Refuse each field, and then the key."""
    name = next((name for name in FIELDS if name in body), None)
    if name is None:
        return [Status(429, {"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}})]
    return refused(f"Unrecognized request argument supplied: {name}")


def sent(running: RunningGateway, names: Sequence[str] = NAMES) -> int:
    return sum(len(running[name].received) for name in names)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("mode", ["single", "race"])
async def test_keys_forms_deployments_and_fallbacks_do_not_multiply(serve: Serve, mode: str, stream: bool) -> None:
    names = NAMES[:6]

    def of(*its: str) -> dict[str, Any]:
        race = {"mode": "single"} if mode == "single" else {"mode": "race", "width": 2, "budget": 1.0}
        return {"deployments": [{"deployment": f"{name}/m", "drop_params": True} for name in its], "race": race}

    models = {MODEL: {**of(*names[:2]), "fallbacks": ["second", "third"]}}
    models |= {"second": of(*names[2:4]), "third": of(*names[4:])}
    config = {"providers": dict.fromkeys(names, RING), "models": models, "max_requests": MOST_OF_CALL}
    async with serve(**dict.fromkeys(names), config=config) as running:
        for name in names:
            running[name].answers = one_after_the_other
        async with running.chat(messages=QUESTION, stream=stream, **VALUES) as response:
            assert response.status >= 400
            await response.read()
        assert sent(running, names) == MOST_OF_CALL


@pytest.mark.parametrize("failure", [Status(503), Status(400, {"error": {"message": "too many tools: limit 9"}})])
@pytest.mark.parametrize(("able", "status"), [(14, 200), (15, None)])
async def test_the_fifteenth_answers_and_no_sixteenth_is_asked(
    serve: Serve, failure: Status, able: int, status: int | None
) -> None:
    models = {
        MODEL: {
            "deployments": [f"{name}/m" for name in NAMES[:10]],
            "fallbacks": ["more"],
            "race": {"mode": "single", "width": 2},
        },
        "more": {"deployments": [f"{name}/m" for name in NAMES[10:]], "race": {"mode": "single", "width": 2}},
    }
    async with serve(**dict.fromkeys(NAMES), config={"models": models, "max_requests": MOST_OF_CALL}) as running:
        running.prefer(*NAMES[:10], first_s=5.0)
        running.prefer(*NAMES[10:], model="more", first_s=5.0)
        for name in NAMES:
            running[name].script = answer("Hello") if name == NAMES[able] else [failure]
        async with running.chat() as response:
            await response.read()
        assert response.status == status or (status is None and response.status >= 400)
        assert sent(running) == MOST_OF_CALL


async def test_what_was_never_sent_does_not_count(serve: Serve) -> None:
    gone = {f"gone{number}": {"kind": "openai_compatible", "base_url": "http://127.0.0.1:9"} for number in range(26)}
    deployments = [*(f"{name}/m" for name in gone), "alpha/m"]
    models = {MODEL: {"deployments": deployments, "race": {"mode": "single", "width": 2}}}
    async with serve(alpha=answer("Hello"), config={"models": models, "providers": gone}) as running:
        running.prefer(*gone, "alpha")
        async with running.chat() as response:
            assert response.status == 200


@pytest.mark.parametrize("seats", [{}, {"max_in_flight": 4}], ids=["", "seats"])
async def test_who_has_made_as_many_waits_for_nobody_to_be_free(serve: Serve, seats: dict[str, Any]) -> None:
    limited = Status(429, {"error": {"message": "Rate limit reached"}}, {"retry-after": "1"})
    models = {MODEL: {"deployments": [{"deployment": "alpha/m", **seats}], "race": {"mode": "single"}}}
    async with serve(alpha=[limited], config={"models": models, "max_requests": 1}) as running:
        async with running.chat() as response:
            body = await response.json()
        assert (response.status, sent(running, ("alpha",))) == (429, 1), body
        rows = await running.rows("select error_kind from calls")
        assert rows == [{"error_kind": "rate_limit_exceeded"}], body
