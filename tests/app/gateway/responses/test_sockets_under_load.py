"""Many connections of Responses over a WebSocket at once: each turn is won by another provider, and nothing stays."""

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any

from providers.simulator import Hang, Step
from tests.app.gateway.responses.test_responses_socket import BOTH_SPEAK, connected, said
from tests.app.gateway.restarts.test_no_leaks import of_calls, race_of_two
from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.patience import until

CONNECTIONS, TURNS = 20, 20
FILLER = "x" * 2000  # so that what is kept of all turns is more than what is there anyway


def answers_in_turn(remainder: int) -> Callable[[Any], Sequence[Step]]:
    """Return what a provider does: of turns whose number leaves this remainder it answers, of the others it hangs."""

    def script(body: Any) -> Sequence[Step]:
        asked = body["input"] if isinstance(body["input"], str) else body["input"][-1]["content"]
        connection, turn, _ = asked.split(":")
        who = int(connection) + int(turn)
        return [said(f"{connection}:{turn}", f"resp_{connection}_{turn}")] if who % 2 == remainder else [Hang()]

    return script


async def converse(running: RunningGateway, connection: int) -> list[str]:
    """Return what a connection was answered, turn by turn."""
    heard: list[str] = []
    before: dict[str, Any] = {}
    async with connected(running) as socket:
        for turn in range(TURNS):
            response = await socket.turn(f"{connection}:{turn}:{FILLER}", **before)
            heard.append(response["output"][0]["content"][0]["text"])
            before = {"previous_response_id": response["id"]}
    return heard


async def test_twenty_connections_of_twenty_turns_each_hear_their_own_answers_and_leave_nothing(serve: Serve) -> None:
    async with serve(alpha=None, beta=None, config=BOTH_SPEAK | race_of_two()) as running:
        for remainder, name in enumerate(("alpha", "beta")):
            running[name].answers = answers_in_turn(remainder)
        gc.collect()
        known = set(map(id, of_calls()))
        heard = await asyncio.gather(*(converse(running, each) for each in range(CONNECTIONS)))
        assert heard == [[f"{each}:{turn}" for turn in range(TURNS)] for each in range(CONNECTIONS)]
        rows = await running.rows("select provider, outcome, count(*) as n from attempts group by 1, 2 order by 1, 2")
        won = {row["provider"]: row["n"] for row in rows if row["outcome"] == "won"}
        assert won == {"alpha": CONNECTIONS * TURNS // 2, "beta": CONNECTIONS * TURNS // 2}
        longest = max(
            len(each.body["input"]) for each in running["alpha"].received if isinstance(each.body["input"], list)
        )
        assert longest == 2 * TURNS - 1  # all that was said before, also by the other provider

        context = running.gateway.context
        await context.fleet.idle()
        if ending := set(context.services.tasks._tasks):
            await asyncio.wait(ending)
        await until(lambda: not context.bodies.size)
        gc.collect()
        left = [type(each).__name__ for each in of_calls() if id(each) not in known]
        assert left.count("Race") == 0
        assert (context.intake.in_flight, context.intake.waiting) == (0, 0)
