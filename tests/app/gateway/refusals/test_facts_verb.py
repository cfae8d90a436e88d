"""holeshot facts: an operator sees from the command line what refusals have taught, and has some of it forgotten."""

import json
from typing import Any

import pytest

from tests.app.gateway.key_desk import sha256
from tests.app.gateway.races.test_explain import holeshot
from tests.app.gateway.refusals.test_refused_fields import QUESTION, refusing
from tests.app.gateway.refusals.test_who_taught_it import EFFORT, clients, said
from tests.app.gateway.running_gateway import RunningGateway, Serve

STAFF = {"root": "admin", "eye": "viewer", "ops": "operator"}


def keyed() -> dict[str, Any]:
    config = clients("ann", "bob")
    config["clients"] |= {name: {"key_sha256": sha256(f"hs-{name}"), "role": role} for name, role in STAFF.items()}
    return config


async def facts(running: RunningGateway, *arguments: str, name: str = "root") -> Any:
    return await holeshot(running, "facts", *arguments, "--key", f"hs-{name}")


async def listed(running: RunningGateway, *arguments: str, name: str = "root") -> Any:
    result = await facts(running, *arguments, "--json", name=name)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_who_met_what_is_listed_with_why_and_for_whom_it_holds(serve: Serve) -> None:
    async with serve(alpha=None, config=keyed()) as running:
        assert "no refusal has taught anything" in (await facts(running)).stdout
        running["alpha"].answers = refusing("reasoning_effort")
        await said(running, "ann")
        shown = (await facts(running, name="eye")).stdout
        assert all(each in shown for each in ("alpha/m", "reasoning_effort", "ann alone", "400 invalid_request_error"))
        await said(running, "bob")
        assert "all (met by ann, bob)" in (await facts(running)).stdout
        [fact] = await listed(running)
        async with running.get("/admin/facts", headers={"authorization": "Bearer hs-root"}) as response:
            assert [fact] == (await response.json())["data"]
        for option, value in (("--provider", "alpha"), ("--model", "m"), ("--client", "bob")):
            assert await listed(running, option, value) == [fact]
            assert await listed(running, option, "other") == []


@pytest.mark.parametrize("by", [None, ("--provider", "alpha"), ("--model", "m"), ("--client", "ann")])
async def test_what_is_forgotten_is_sent_again(serve: Serve, by: tuple[str, str] | None) -> None:
    async with serve(alpha=None, config=keyed()) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        assert await said(running, "ann") == (200, "reasoning_effort")
        [fact] = await listed(running)
        arguments = (fact["id"],) if by is None else by
        result = await facts(running, "forget", *arguments)
        assert (result.exit_code, "1 fact forgotten" in result.stdout) == (0, True), result.output
        assert await listed(running) == []
        running["alpha"].answers = None
        assert await said(running, "ann") == (200, None)
        again = await facts(running, "forget", *arguments)
        assert (again.exit_code, "`holeshot facts`" in again.stderr or "none is known" in again.stderr) == (1, True)


async def test_what_others_have_taught_stays(serve: Serve) -> None:
    async with serve(alpha=None, config=keyed()) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        await said(running, "ann")
        running["alpha"].answers = refusing("user")
        await said(running, "bob", {"messages": QUESTION, "user": "u"})
        before = await listed(running)
        assert len(before) == 2
        told = json.loads((await facts(running, "forget", "--client", "bob", "--json")).stdout)
        assert [each["clients"] for each in told] == [["bob"]]
        assert [each["clients"] for each in await listed(running)] == [["ann"]]
        mixed = await facts(running, "forget", before[0]["id"], "nosuch")
        assert (mixed.exit_code, "there is no fact 'nosuch'" in mixed.stderr) == (1, True)
        assert len(await listed(running)) == 1


@pytest.mark.parametrize("name", ["ann", "eye", "ops"])
async def test_only_an_admin_has_facts_forgotten_and_others_are_told_whose_key_to_give(serve: Serve, name: str) -> None:
    async with serve(alpha=None, config=keyed()) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        assert await said(running, "ann", EFFORT) == (200, "reasoning_effort")
        result = await facts(running, "forget", "--provider", "alpha", name=name)
        assert (result.exit_code, "`role: admin`" in result.stderr, "viewer" in result.stderr) == (1, True, False)
        wrong = await facts(running, "forget", "--provider", "alpha", name="nobody")
        assert (wrong.exit_code, "give the key of an admin with --key" in wrong.stderr) == (1, True)
        assert len(await listed(running)) == 1


async def test_without_keys_anybody_on_this_machine_may(serve: Serve) -> None:
    async with serve(alpha=None) as running:
        running["alpha"].answers = refusing("reasoning_effort")
        async with running.chat(messages=QUESTION, reasoning_effort="low") as response:
            assert response.status == 200
        assert "all" in (await holeshot(running, "facts")).stdout
        result = await holeshot(running, "facts", "forget", "--provider", "alpha")
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("forget",), "say what to forget: give IDs, as"),
        (("forget", "0123", "--provider", "alpha"), "give either IDs or options"),
        (("--provider", "alpha", "forget", "0123"), "write --provider after the verb"),
        (("--json", "forget", "0123"), "write --json after the verb"),
    ],
)
async def test_what_is_misused_says_how_it_is_written(serve: Serve, arguments: tuple[str, ...], words: str) -> None:
    async with serve(alpha=None) as running:
        result = await holeshot(running, "facts", *arguments)
        assert (result.exit_code, words in result.stderr) == (2, True), result.output
