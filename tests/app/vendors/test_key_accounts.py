"""Keys of one ring are one account until the vendor's answer says that they are two; a rotated key keeps its account.

platform.claude.com/docs/en/build-with-claude/preserved-thinking, read on 2026-11-29: Claude Sonnet and Haiku 5.5 drop
what another account made, and tell of it in ``input_transformations``.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from strict_vendors import Refused, Request, Served, served
from strict_vendors.known.anthropic import Anthropic
from tests.app.gateway.running_gateway import RunningGateway, read, serving
from tests.app.vendors.test_edited_histories import begun, lost, thoughts
from tests.app.vendors.test_signed_loops import PATHS, answered, gone_on
from tests.patience import until

Json = dict[str, Any]
SONNET = "claude-sonnet-5-5"
KEYS = {"one": "sk-ant-key-one-0123456789", "two": "sk-ant-key-two-0123456789"}
FOREIGN = "organization_binding_mismatch"


class WithKeys(Anthropic):
    """Anthropic's servers as its customers with several keys know them."""

    def __init__(self) -> None:
        super().__init__()
        self.accounts = dict.fromkeys(KEYS.values(), "ours")  # by key
        self.limited: set[str] = set()  # the keys that it has no room for

    def admit(self, request: Request) -> None:
        self.key = request.headers["x-api-key"]
        if self.key not in self.accounts:
            raise Refused(401, "invalid x-api-key", rule="key")
        if self.key in self.limited:
            raise Refused(429, "This request would exceed your account's rate limit.", rule="limited")
        self.account = self.accounts[self.key]
        super().admit(request)


class Ring:
    """A gateway before them, and the vendor."""

    def __init__(self, running: RunningGateway, vendor: Served, at: WithKeys) -> None:
        self.running, self.vendor, self.at = running, vendor, at

    @property
    def asked(self) -> str:
        """The key that was asked last."""
        return self.vendor.seen[-1].headers["x-api-key"]

    @property
    def learnt(self) -> list[str]:
        """What is known of the model."""
        learnt = self.running.gateway.engine.fleets.learnt("anthropic")
        return [] if learnt is None else [fact.words for fact in learnt.models.get(SONNET, ())]

    async def step(self, api: str, body: Json) -> Json:
        """Return the next request."""
        return gone_on(api, body, await answered(self.running, api, "m", body, stream=True))

    async def told(self, body: Json) -> str:
        """Return what a client of Messages is told that was left out."""
        async with self.running.post({**body, "model": "m"}, path=PATHS["messages"]) as response:
            assert response.status == 200, await response.read()
            dropped = str(response.headers.get("x-holeshot-dropped", ""))
        return ", ".join(each for each in dropped.split(", ") if each.startswith("messages"))

    async def rested(self) -> None:
        """Wait until no key is limited any more."""
        self.at.limited.clear()
        [deployment] = self.running.gateway.context.fleet.models["m"].deployments.values()
        ring: Any = deployment.upstream
        await until(lambda: all(key.cooling_s(SONNET, None, ring._clock()) == 0 for key in ring._keys))


@pytest.fixture
async def ring(tmp_path: Path) -> AsyncIterator[Ring]:
    async with AsyncExitStack() as stack:
        at = WithKeys()
        vendor = await stack.enter_async_context(served(at))
        providers: Json = {"anthropic": {"preset": "anthropic", "base_url": vendor.base_url, "api_keys": KEYS}}
        models: Json = {"m": {"deployments": [f"anthropic/{SONNET}"]}}
        running = await stack.enter_async_context(
            serving(tmp_path, {"unused": None}, providers=providers, models=models)
        )
        yield Ring(running, vendor, at)


def reload(ring: Ring, provider: Json) -> None:
    config = ring.running.config
    own = {**config["providers"]["anthropic"], **provider}
    own = {name: value for name, value in own.items() if value is not None}
    ring.running.config["providers"] = {**config["providers"], "anthropic": own}
    ring.running.gateway.reload(read(ring.running.config, ring.running.folder))


async def learn(ring: Ring) -> None:
    """Have a conversation lose its thoughts once, as its key is limited."""
    ring.at.accounts |= {KEYS["two"]: "another"}
    body = await ring.step("messages", begun("messages"))
    ring.at.limited = {ring.asked}
    assert await ring.told(body)
    assert lost(ring.vendor) == [f"messages.1.content.0 {FOREIGN}"]
    await ring.rested()


@pytest.mark.parametrize("api", PATHS)
async def test_keys_of_one_account_read_each_others_thoughts(ring: Ring, api: str) -> None:
    body = await ring.step(api, begun(api))
    ring.at.limited = {ring.asked}
    await ring.step(api, body)
    assert (lost(ring.vendor), thoughts(ring.vendor.seen[-1].body), ring.learnt) == ([], 1, [])


@pytest.mark.parametrize("api", PATHS)
async def test_once_the_vendor_has_told_of_two_accounts_no_later_turn_loses_its_thoughts(ring: Ring, api: str) -> None:
    await learn(ring)
    assert ring.learnt == ["thoughts of the key 'one' with the key 'two', of another account"]
    body = await ring.step(api, begun(api))
    for _ in range(3):
        body = await ring.step(api, body)
        assert lost(ring.vendor) == []
    assert thoughts(ring.vendor.seen[-1].body) == 3
    assert len({each.headers["x-api-key"] for each in ring.vendor.seen[-4:]}) == 1


async def test_where_the_maker_has_no_room_the_other_account_is_asked_without_them_and_the_client_told(
    ring: Ring,
) -> None:
    await learn(ring)
    body = await ring.step("messages", begun("messages"))
    maker = ring.asked
    ring.at.limited = {maker}
    assert await ring.told(body) == "messages[1].content[0]"
    assert ring.asked != maker
    assert (lost(ring.vendor), thoughts(ring.vendor.seen[-1].body)) == ([], 0)
    await ring.rested()
    assert await ring.told(body) == ""
    assert (ring.asked, thoughts(ring.vendor.seen[-1].body)) == (maker, 1)


async def test_it_is_learnt_at_the_first_loss_after_which_the_maker_is_asked_again(ring: Ring) -> None:
    ring.at.accounts |= {KEYS["two"]: "another"}
    body = await ring.step("messages", begun("messages"))
    maker = ring.asked
    ring.at.limited = {maker}
    await ring.told(body)
    assert lost(ring.vendor) != []
    await ring.rested()
    assert await ring.told(body) == ""  # though the other has answered since
    assert (ring.asked, lost(ring.vendor)) == (maker, [])


async def test_thoughts_that_a_client_brings_from_elsewhere_teach_nothing(ring: Ring, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    ring.at.accounts = dict.fromkeys(KEYS.values(), "elsewhere")
    providers = ring.running.config["providers"]
    models = ring.running.config["models"]
    async with serving(tmp_path / "elsewhere", {"unused": None}, providers=providers, models=models) as elsewhere:
        brought = gone_on(
            "messages",
            begun("messages"),
            await answered(elsewhere, "messages", "m", begun("messages"), stream=True),
        )
    ring.at.accounts = dict.fromkeys(KEYS.values(), "ours")
    for key in KEYS.values():
        ring.at.limited = {key}
        assert await ring.told(brought)
        assert lost(ring.vendor) == [f"messages.1.content.0 {FOREIGN}"]
        await ring.rested()
    assert {each.headers["x-api-key"] for each in ring.vendor.seen[-3:]} == set(KEYS.values())
    assert ring.learnt == []


async def test_a_reload_of_the_provider_forgets_it(ring: Ring) -> None:
    await learn(ring)
    reload(ring, {"http_version": "1.1"})
    assert ring.learnt == []


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("is_ring", [False, True], ids=["one key", "a ring"])
async def test_a_rotated_key_keeps_its_account(ring: Ring, api: str, is_ring: bool) -> None:
    """Also where the names of keys are made of their last letters, which change."""
    old, new = "sk-ant-before-0123456789", "sk-ant-after-9876543210"
    ring.at.accounts |= dict.fromkeys((old, new), "ours")

    def keys(first: str) -> Json:
        return {"api_keys": [first, KEYS["two"]]} if is_ring else {"api_keys": None, "api_key": first}

    reload(ring, keys(old))
    body = await ring.step(api, begun(api))
    reload(ring, keys(new))
    del ring.at.accounts[old]
    for number in range(3):
        body = await ring.step(api, body)
        assert (lost(ring.vendor), thoughts(ring.vendor.seen[-1].body)) == ([], number + 1)
    assert ring.learnt == []


async def test_an_edit_is_refused_by_one_key_alone_and_says_nothing_of_who_can_read_what(ring: Ring) -> None:
    body: Json = {**begun("messages"), "thinking": {"type": "between_tools"}}
    for _ in range(3):
        body = await ring.step("messages", body)
    assert await ring.told({**body, "system": "It is noon."}) == "messages[3].content[0], messages[5].content[0]"
    assert [each.rule for each in ring.vendor.refusals] == ["bound to another conversation"]
    assert ring.learnt == []
