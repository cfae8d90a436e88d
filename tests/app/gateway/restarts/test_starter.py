"""What ``holeshot init`` writes for three keys, served: at simulated providers, over real sockets."""

import yaml

from gateway.settings import found_vendors, starter_text
from providers import load_catalog
from providers.simulator import Status
from tests.app.gateway.running_gateway import Serve

KEYS = {"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k", "MISTRAL_API_KEY": "k"}
NAMES = ("openai", "groq", "mistral")


def written() -> dict[str, object]:
    """Return the models of the file, which the vendors' simulated counterparts serve."""
    models: dict[str, object] = yaml.safe_load(starter_text(list(found_vendors(KEYS, load_catalog())), KEYS))["models"]
    return models


async def test_small_races_in_about_one_call_of_ten_and_any_of_the_vendors_may_answer(serve: Serve) -> None:
    async with serve(**dict.fromkeys(NAMES), config={"models": written()}) as running:
        launched = []
        for _ in range(100):
            async with running.chat(model="small") as response:
                assert response.status == 200
                launched.append(int(response.headers["x-holeshot-launched"]))
        assert max(launched) == 2
        assert launched[50:].count(2) <= 10  # about a tenth, once what a model starts with is spent
        assert {row["provider"] for row in await running.rows("select provider from attempts")} <= set(NAMES)


async def test_a_vendors_own_name_is_answered_by_that_model_else_by_one_of_its_size_which_is_told(serve: Serve) -> None:
    async with serve(**dict.fromkeys(NAMES), config={"models": written()}) as running:
        assert await running.answered_by(model="gpt-6-luna") == (200, None)
        assert running["openai"].counts.requests == running.requests
        running["openai"].script = [Status(500)]
        assert await running.answered_by(model="gpt-6-luna") == (200, "small")
