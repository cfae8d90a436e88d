"""``holeshot.Racer``: the engine in the caller's process, on providers over real sockets."""

import asyncio
import json
import os
import re
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import holeshot
from holeshot import Racer
from providers.simulator import Delta, Done, Drop, Finish, Gate, Hang, RoleOnly, Status, answer
from tests.patience import PATIENCE_S
from tests.support.ledgers import lay, migrated
from tests.support.raced import Raced, two_providers

ROOT = Path(__file__).parents[4]


@pytest.fixture
async def raced(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Raced]:
    for name in [name for name in os.environ if name.startswith("HOLESHOT_")]:
        monkeypatch.delenv(name)
    async with two_providers() as found:
        yield found


async def test_chunks_arrive_and_the_loser_is_cut(raced: Raced) -> None:
    async with Racer(**raced.arguments) as racer:
        stream = racer.stream("chat", "Why?")
        text = "".join([chunk.text async for chunk in stream])
        await raced.slow.reach(disconnects=1)

    assert (text, stream.winner) == ("Hello!", "fast/m")
    assert stream.ttft_s is not None
    assert {each.deployment: each.outcome for each in stream.attempts} == {"fast/m": "won", "slow/m": "lost"}


async def test_a_whole_answer_has_its_text_and_who_won(raced: Raced) -> None:
    async with Racer(**raced.arguments) as racer:
        told = await racer.complete("chat", [{"role": "user", "content": "Why?"}], max_tokens=10)

    assert (told.text, told.winner, told.data["object"]) == ("Hello!", "fast/m", "chat.completion")
    assert len(told.attempts) == 2


async def test_one_line_races(raced: Raced) -> None:
    assert (await holeshot.race("chat", "Why?", **raced.arguments)).text == "Hello!"


APIS: dict[str, tuple[dict[str, Any], str, str]] = {
    "responses": ({"input": "Why?"}, "response.completed", "response"),
    "messages": ({"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 9}, "message_stop", "message"),
}


@pytest.mark.parametrize("name", APIS)
async def test_another_api_streams_its_own_events_and_gives_its_own_answer(raced: Raced, name: str) -> None:
    fields, last, kind = APIS[name]
    async with Racer(**raced.arguments) as racer:
        api: holeshot.Api = getattr(racer, name)
        stream = api.stream(model="chat", **fields)
        chunks = [chunk async for chunk in stream]
        told = await api.create(model="chat", **fields)

    assert ("".join(chunk.text for chunk in chunks), chunks[-1].data["type"], stream.winner) == (
        "Hello!",
        last,
        "fast/m",
    )
    assert (told.text, told.data.get("object", told.data.get("type")), told.winner) == ("Hello!", kind, "fast/m")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"previous_response_id": "resp_1"}, "keeps no responses"),
        ({"background": True}, "'background'"),
        ({"stream": True}, r"Racer\.responses\.stream"),
    ],
)
async def test_a_response_that_a_racer_cannot_give_is_refused(raced: Raced, fields: dict[str, Any], why: str) -> None:
    async with Racer(**raced.arguments) as racer:
        with pytest.raises(holeshot.ApiError, match=why):
            await racer.responses.create(model="chat", input="Why?", **fields)


async def test_leaving_the_loop_cuts_all_attempts(raced: Raced) -> None:
    raced.fast.script = [Gate(raced.slow.requested), RoleOnly(), Delta("Hel"), Hang()]
    async with Racer(**raced.arguments) as racer:
        async for chunk in racer.stream("chat", "Why?"):
            if chunk.text:
                break
        await raced.fast.reach(disconnects=1)
        await raced.slow.reach(disconnects=1)


@pytest.mark.parametrize("streamed", [True, False])
async def test_cancelling_the_task_cuts_all_attempts(raced: Raced, *, streamed: bool) -> None:
    raced.fast.script = [RoleOnly(), Hang()]
    async with Racer(**raced.arguments) as racer:

        async def read() -> None:
            if streamed:
                async for _ in racer.stream("chat", "Why?"):
                    pass
            else:
                await racer.complete("chat", "Why?")

        task = asyncio.create_task(read())
        await raced.fast.reach(requests=1)
        await raced.slow.reach(requests=1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await raced.fast.reach(disconnects=1)
        await raced.slow.reach(disconnects=1)


async def test_closing_ends_the_calls_that_run_and_leaves_no_task(raced: Raced) -> None:
    before = asyncio.all_tasks()
    raced.fast.script = [RoleOnly(), Hang()]
    async with Racer(**raced.arguments) as racer:
        task = asyncio.create_task(racer.complete("chat", "Why?"))
        await raced.fast.reach(requests=1)
    with pytest.raises(holeshot.ApiError, match="closed while this call ran"):
        await asyncio.wait_for(task, PATIENCE_S)
    ours = re.compile(r"/(?:holeshot|gateway|providers/http)/")
    assert [each for each in asyncio.all_tasks() - before if ours.search(repr(each))] == []


async def test_a_race_that_all_providers_fail_raises(raced: Raced) -> None:
    raced.fast.script = raced.slow.script = [Status(500)]
    async with Racer(**raced.arguments) as racer:
        with pytest.raises(holeshot.RaceFailed, match="fast/m"):
            await racer.complete("chat", "Why?")
        with pytest.raises(holeshot.RaceFailed, match="slow/m"):
            async for _ in racer.stream("chat", "Why?"):
                pass


async def test_an_answer_that_breaks_off_raises_after_what_came(raced: Raced) -> None:
    read_some, came = asyncio.Event(), list[str]()
    raced.fast.script = [Gate(raced.slow.requested), RoleOnly(), Delta("Hel"), Gate(read_some), Drop()]

    async def read(racer: Racer) -> None:
        async for chunk in racer.stream("chat", "Why?"):
            came.append(chunk.text)
            if chunk.text:
                read_some.set()

    async with Racer(**raced.arguments) as racer:
        with pytest.raises(holeshot.UpstreamError):
            await read(racer)
    assert "".join(came) == "Hel"


@pytest.fixture
def continued(raced: Raced) -> asyncio.Event:
    """Have the first's answer break once the event is set, and let the second finish it."""
    broken = asyncio.Event()
    deployments = [{"deployment": f"{name}/m", "continues": "prefix"} for name in ("fast", "slow")]
    raced.arguments["models"]["chat"] |= {"deployments": deployments, "takeover": True}
    raced.fast.script = [Gate(raced.slow.requested), RoleOnly(), Delta("The quick bro"), Gate(broken), Drop()]
    return broken


async def test_an_answer_that_breaks_off_is_finished_by_another_deployment_where_it_may_be(
    raced: Raced, continued: asyncio.Event, tmp_path: Path
) -> None:
    came, reasons = "", []
    lay(migrated(), tmp_path / "calls.db")
    async with Racer(**raced.arguments, ledger=tmp_path / "calls.db") as racer:
        stream = racer.stream("chat", "Which fox?")
        async for chunk in stream:
            came += chunk.text
            reasons += [choice["finish_reason"] for choice in chunk.data["choices"]]
            if chunk.text and not continued.is_set():
                raced.slow.script = answer(" brown fox", " jumps.")
                continued.set()

    assert (came, reasons[-1], stream.winner) == ("The quick brown fox jumps.", "stop", "fast/m")
    assert raced.slow.received[-1].body["messages"][-1] == {
        "role": "assistant",
        "content": "The quick",
        "prefix": True,
    }
    assert sorted((each.deployment, each.outcome) for each in stream.attempts) == [
        ("fast/m", "failed"),
        ("slow/m", "lost"),
        ("slow/m", "won"),
    ]
    with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
        assert connection.execute("select takeover, takeovers from calls").fetchall() == [("finished", 1)]


async def test_an_answer_that_nobody_finishes_raises_after_what_came(raced: Raced, continued: asyncio.Event) -> None:
    came = list[str]()

    async def read(racer: Racer) -> None:
        async for chunk in racer.stream("chat", "Which fox?"):
            came.append(chunk.text)
            if chunk.text:
                raced.slow.script = answer("Sure!")
                continued.set()

    async with Racer(**raced.arguments) as racer:
        with pytest.raises(holeshot.UpstreamError):
            await read(racer)
    assert "".join(came) == "The quick bro"


async def test_a_reader_that_is_slow_gets_all(raced: Raced) -> None:
    words = [f"{number} " for number in range(500)]
    raced.fast.script = [RoleOnly(), *map(Delta, words), Finish(), Done()]
    heard = []
    async with Racer(**raced.arguments) as racer:
        async for chunk in racer.stream("fast/m", "Count."):
            heard.append(chunk.text)
            await asyncio.sleep(0)
    assert "".join(heard) == "".join(words)


async def test_what_is_wrong_is_said(raced: Raced) -> None:
    async with Racer(**raced.arguments) as racer:
        with pytest.raises(holeshot.ModelNotFound, match="chat"):
            await racer.complete("chta", "Why?")
        with pytest.raises(holeshot.InvalidRequest, match=r"Racer\.stream"):
            racer.stream("chat", "Why?", stream=True)
        with pytest.raises(holeshot.InvalidRequest, match="JSON"):
            racer.stream("chat", "Why?", metadata=object())
        stream = racer.stream("chat", "Why?")
        assert [chunk async for chunk in stream]
        with pytest.raises(RuntimeError, match="read once"):
            [chunk async for chunk in stream]
        with pytest.raises(RuntimeError, match="event loop in which it was entered"):
            await asyncio.to_thread(asyncio.run, racer.complete("chat", "Why?"))
    with pytest.raises(RuntimeError, match="async with"):
        await racer.complete("chat", "Why?")


async def test_a_racer_is_entered_once(raced: Raced) -> None:
    racer = Racer(**raced.arguments)
    async with racer:
        with pytest.raises(RuntimeError, match="entered once"):
            await racer.__aenter__()
        assert (await racer.complete("chat", "Why?")).text == "Hello!"
    with pytest.raises(RuntimeError, match="entered once"):
        await racer.__aenter__()


@pytest.mark.parametrize(
    ("name", "why"),
    [("junk.db", "is not a SQLite database"), ("folder", "Is a directory"), ("calls?.db", "question mark")],
)
async def test_a_ledger_that_cannot_be_used_is_refused_at_once(
    raced: Raced, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "junk.db").write_text("no database" * 100)
    (tmp_path / "folder").mkdir()
    with pytest.raises(holeshot.ConfigurationError, match=rf"ledger: .*{why}"):
        Racer(**raced.arguments, ledger=tmp_path / name)


def test_a_wrong_configuration_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(holeshot.ConfigurationError, match=r"models\.chat\.race\.budgte"):
        Racer(models={"chat": {"deployments": ["groq/m"], "race": {"budgte": 1}}})
    for wrong in (1, ["groq"], "groq"):
        with pytest.raises(holeshot.ConfigurationError, match=r"^providers: must be a dict"):
            Racer(providers=wrong)  # type: ignore[arg-type] # as is meant
    (tmp_path / "gateway.yaml").write_text("modells: {}\n")
    with pytest.raises(holeshot.ConfigurationError, match=r"gateway\.yaml"):
        Racer(tmp_path / "gateway.yaml")
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN", "_BEDROCK")) or name.startswith("HOLESHOT_"):
            monkeypatch.delenv(name)
    with pytest.raises(holeshot.ConfigurationError, match="GROQ_API_KEY"):
        Racer()


async def test_a_proxy_that_no_provider_can_be_opened_with_is_a_problem_of_the_configuration(
    raced: Raced, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("http_proxy", "socks5://127.0.0.1:9"), ("no_proxy", "")):
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name.upper(), raising=False)
    with pytest.raises(holeshot.ConfigurationError, match=r"^HTTP_PROXY must be http"):
        await Racer(**raced.arguments).__aenter__()


async def test_a_ledger_is_made_with_the_name_that_was_given_and_has_the_calls(raced: Raced, tmp_path: Path) -> None:
    async with Racer(**raced.arguments, ledger=tmp_path / "100%25 of it.db") as racer:
        told = await racer.complete("chat", "Why?")

    with closing(sqlite3.connect(tmp_path / "100%25 of it.db")) as connection:
        assert connection.execute("select id, launched from calls").fetchall() == [(told.call_id, 2)]
        outcomes = connection.execute("select outcome from attempts order by deployment").fetchall()
    assert outcomes == [("won",), ("lost",)]
    assert not (tmp_path / "100% of it.db").exists()


async def _run(program: str, folder: Path, **environ: str) -> tuple[str, str]:
    """Run ``program`` with this checkout and nothing else of this environment; return what it has printed."""
    command = [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{program}"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **environ}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environ, stdout=pipe, stderr=pipe)
    out, errors = await process.communicate()
    return out.decode(), errors.decode()


ROOMS = ("admin", "alerts", "cli", "connections", "ledger", "live", "probing", "server", "watching")
# Each with what imports it: a room of the server, a file, a variable, a ledger, a log line, a request, a provider.
UNUSED = {
    *(f"gateway.{room}" for room in ROOMS),
    *("aiohttp", "asyncpg", "redis", "typer", "uvloop"),
    *("yaml", "dotenv", "pydantic_settings"),
    *("aiosqlite", "alembic", "sqlalchemy"),
    *("pygments", "rich", "structlog"),
    *("jsonschema", "litellm"),
}
SAY = "print(*sorted(name for name in sys.modules if name.count('.') < 2))"


async def test_importing_imports_no_engine(tmp_path: Path) -> None:
    out, errors = await _run(f"import holeshot; {SAY}", tmp_path)
    assert (set(out.split()) & {"gateway", "providers", "asyncio", "msgspec", "openai", "httpx"}, errors) == (set(), "")


async def test_a_first_race_imports_only_what_it_needs(raced: Raced, tmp_path: Path) -> None:
    race = f"import asyncio, holeshot; print(asyncio.run(holeshot.race('chat', 'Why?', **{raced.arguments})).text)"
    out, errors = await _run(f"{race}\n{SAY}", tmp_path)
    text, *imported = out.split()
    assert (text, set(imported) & UNUSED, errors) == ("Hello!", set(), "")


async def test_what_a_race_does_not_need_is_there_when_it_is_needed(raced: Raced, tmp_path: Path) -> None:
    (tmp_path / "gateway.yaml").write_text(json.dumps(raced.arguments))
    lay(migrated(), tmp_path / "calls.db")
    raced.fast.script = raced.slow.script = [Status(401)]
    race = """
import asyncio, holeshot
try: asyncio.run(holeshot.race('chat', 'Why?', config='gateway.yaml', ledger='calls.db'))
except holeshot.RaceFailed: print('failed')
"""
    out, _ = await _run(f"{race}\n{SAY}", tmp_path, HOLESHOT_REPLICA="mine")
    needed = {"yaml", "pydantic_settings", "sqlalchemy", "aiosqlite", "structlog", "gateway.ledger"}
    assert {"failed", *needed} <= set(out.split())


@pytest.mark.parametrize("streamed", [True, False])
async def test_ctrl_c_cuts_all_attempts_and_leaves_nothing_open(
    raced: Raced, tmp_path: Path, *, streamed: bool
) -> None:
    lay(migrated(), tmp_path / "calls.db")
    raced.fast.script = [RoleOnly(), Hang()]
    program = f"""
import sys; sys.path.append({str(ROOT)!r})
import asyncio, holeshot
async def main():
    async with holeshot.Racer(**{raced.arguments}, ledger="calls.db") as racer:
        if {streamed}:
            async for _ in racer.stream("chat", "Why?"): pass
        else:
            await racer.complete("chat", "Why?")
try: asyncio.run(main())
except KeyboardInterrupt: print("interrupted")
"""
    pipe = asyncio.subprocess.PIPE
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-W", "always", "-c", program]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, env=environ, stdout=pipe, stderr=pipe)
    await raced.fast.reach(requests=1)
    await raced.slow.reach(requests=1)
    process.send_signal(signal.SIGINT)
    await raced.fast.reach(disconnects=1)
    await raced.slow.reach(disconnects=1)
    assert await process.communicate() == (b"interrupted\n", b"")
    with closing(sqlite3.connect(tmp_path / "calls.db")) as connection:
        assert connection.execute("select outcome from attempts").fetchall() == [("client_gone",)] * 2


@pytest.mark.parametrize("name", ["gateway", "providers"])
async def test_a_package_of_somebody_elses_is_named_and_left_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("IS = 'mine'\n")
    told, _ = await _run(
        f"import holeshot, {name}\ntry:\n  holeshot.Racer\nexcept ImportError as e: print(e, {name}.IS)", tmp_path
    )
    assert f"its own package '{name}'" in told
    assert str(tmp_path / f"{name}.py") in told
    assert told.rstrip().endswith("mine")
