"""The first clause that can be spoken wins, over real sockets."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from gateway.core.attempts import WinOn
from gateway.settings import When
from providers.simulator import Delta, Done, Drop, Finish, Gate, Hang, Pause, Raw, Step, answer
from tests.app.gateway.key_desk import Desk, in_database, sha256
from tests.app.gateway.races.test_objectives import KEY
from tests.app.gateway.running_gateway import MODEL, RunningGateway, Serve
from tests.patience import until
from tests.support.moved_time import MovedTime

VOICE: dict[str, Any] = {"models": {MODEL: {"race": {"mode": "race", "win_on": "sentence"}}}}


async def said(running: RunningGateway, **options: Any) -> str:
    async with running.chat(**options) as response:
        assert response.status == 200
        body: bytes = await response.read()
        return body.decode()


async def test_who_says_a_sentence_first_wins_and_the_ledger_and_metrics_have_its_time(serve: Serve) -> None:
    async with serve(mumbles=[Delta("Well"), Delta(", "), Hang()], talks=None, config=VOICE) as running:
        running["talks"].script = [Gate(running["mumbles"].requested), *answer("It is noon. Anything else?")]
        assert "noon" in await said(running, stream=True)
        rows = {row["provider"]: row for row in await running.rows("select * from attempts")}
        talks, mumbles = rows["talks"], rows["mumbles"]
        assert (talks["outcome"], talks["win_on"], talks["token_ms"]) == ("won", "sentence", talks["sentence_ms"])
        assert talks["speech_pause_ms"] is not None
        assert (mumbles["outcome"], mumbles["sentence_ms"]) == ("lost", None)
        assert mumbles["censored_at_ms"] is not None
        async with running.http.get(f"{running.url}/metrics") as response:
            page = await response.text()
        assert "holeshot_attempt_first_sentence_seconds_count" in page


async def test_what_is_not_spoken_is_not_waited_for(serve: Serve) -> None:
    script = [Delta('{"a":'), Delta(" 1}"), Finish(), Done()]
    async with serve(alpha=script, beta=script, config=VOICE) as running:
        await said(running, stream=True, response_format={"type": "json_object"})
        await said(running)
        rows = await running.rows("select distinct win_on, sentence_ms from attempts")
        assert [tuple(row.values()) for row in rows] == [("answer", None)]


async def test_the_leaderboard_has_the_time_to_the_first_sentence_where_it_was_measured(serve: Serve) -> None:
    async def row(running: RunningGateway, path: str) -> dict[str, Any]:
        async with running.get(path) as response:
            board: dict[str, Any] = await response.json()
        found: dict[str, Any] = board["models"][0]["deployments"][0]
        return found

    async with serve(talks=answer("It is noon. Anything else?")) as running:
        for _ in range(3):
            await said(running, stream=True)
        before = await row(running, "/leaderboard")
        assert (before["n_first_token"], before["n_sentence"], before["sentence_p50_ms"]) == (3, 0, None)
        for _ in range(4):
            await said(running, stream=True, race={"win_on": "sentence"})
        for path in ("/leaderboard", "/api/leaderboard"):
            after = await row(running, path)
            assert (after["n_first_token"], after["n_sentence"]) == (7, 4)
            assert after["sentence_p95_ms"] >= after["sentence_p50_ms"] > 0


async def test_the_leaderboard_of_a_voice_is_ordered_by_first_clauses(serve: Serve) -> None:
    """Who begins first, and then dribbles, is no first choice of a voice."""
    dribbles = [Delta("It"), Pause(0.4), Delta(" is noon."), Finish(), Done()]
    talks = [Pause(0.1), *answer("It is noon.")]
    config = {"models": {MODEL: {"race": {"profile": "voice", "mode": "single"}}}}
    async with serve(dribbles=dribbles, talks=talks, config=config) as running:
        for name in ("dribbles", "talks") * 4:
            assert "noon" in await said(running, stream=True, provider={"only": [name]})
        rows = await running.rows("select provider, avg(ttft_ms) as ttft_ms from attempts group by provider order by 2")
        assert [row["provider"] for row in rows] == ["dribbles", "talks"]  # by the first token it would be first
        for path in ("/leaderboard", "/api/leaderboard"):
            async with running.get(path) as response:
                [board] = (await response.json())["models"]
            assert [row["rank"] for row in board["deployments"]] == [1, 2]
            assert [row["deployment"].partition("/")[0] for row in board["deployments"]] == ["talks", "dribbles"]
            assert all(row["sentence_p50_ms"] == row["ttft_p50_ms"] for row in board["deployments"])


async def test_a_chats_first_tokens_and_a_voices_first_clauses_are_figures_of_their_own(serve: Serve) -> None:
    dribbles = [Delta("It"), Pause(0.1), Delta(" is noon."), Finish(), Done()]
    async with serve(dribbles=dribbles) as running:
        for _ in range(20):
            await asyncio.gather(said(running, stream=True), said(running, stream=True, race={"win_on": "sentence"}))
        async with running.get("/leaderboard") as response:  # computed now, so that what is explained is no older
            [board] = (await response.json())["models"]
        assert board["prompt_class"] == 0
        found = []
        for asked in ("", "&win_on=sentence", "&win_on=sentence&json_schema=true"):
            async with running.get(f"/leaderboard?explain=1&model={MODEL}{asked}") as response:
                [told] = (await response.json())["models"]
            [deployment] = told["explanation"]["deployments"]
            found.append(deployment["ttft_p50_s"])
        tokens, clauses, objects = found
        assert tokens < clauses
        assert objects == tokens


async def test_an_explained_plan_has_the_starts_of_a_call_that_is_spoken(serve: Serve) -> None:
    config = {"models": {MODEL: {"race": {"profile": "voice"}}}}
    async with serve(alpha=None, beta=None, config=config) as running:
        for asked, roles in (("", ["primary", "race", "failover", "failover"]), ("&stream=false", ["primary", "race"])):
            async with running.get(f"/leaderboard?explain=1&model={MODEL}{asked}") as response:
                [told] = (await response.json())["models"]
            assert [launch["role"] for launch in told["explanation"]["launches"]] == roles


async def test_a_target_of_a_voice_counts_first_clauses(serve: Serve) -> None:
    dribbles = [Delta("It"), Pause(0.2), Delta(" is noon."), Finish(), Done()]
    race = {"profile": "voice", "mode": "single"}
    slo = {"soon": {"profile": "voice", "ttft_ms": 150}, "later": {"profile": "voice", "ttft_ms": 60_000, "tok_s": 0.1}}
    async with serve(dribbles=dribbles, config={"models": {MODEL: {"race": race}}, "slo": slo}) as running:
        assert "noon" in await said(running, stream=True)
        await running.gateway.ledger.flush()
        async with running.get("/api/slo") as response:
            found = {each["name"]: each for each in (await response.json())["targets"]}
        assert (found["soon"]["calls"], found["soon"]["late"]) == (1, 1)
        assert (found["later"]["calls"], found["later"]["bad"]) == (1, 0)


async def test_the_profile_in_a_file_is_all_of_it_and_a_request_gets_what_costs_nothing_more(serve: Serve) -> None:
    """An answer that breaks after its first clause is finished by another; a request alone is told that it is not."""
    broken = [Delta("It is noon. Any"), Drop()]
    deployments = [{"deployment": f"{name}/m", "continues": "final_message"} for name in ("breaks", "goes")]
    alone = {"profile": "voice", "mode": "single"}
    config = {
        "models": {
            MODEL: {"deployments": deployments, "race": alone},
            "asked": {"deployments": deployments, "race": {"mode": "single"}},
            "declines": {"deployments": deployments, "race": alone, "takeover": "never"},
            "finishes": {"deployments": deployments, "race": {"mode": "single"}, "takeover": "always"},
        }
    }
    async with serve(breaks=broken, goes=answer("Anything", " else?"), config=config) as running:
        order = {"order": ["breaks", "goes"]}
        whole = await said(running, stream=True, provider=order)
        assert "else?" in whole
        assert "[DONE]" in whole
        said_itself = {"mode": "single", "profile": "voice"}
        async with running.chat(stream=True, provider=order, model="asked", race=said_itself) as response:
            assert response.headers["x-holeshot-ignored"] == "takeover"
            assert "[DONE]" not in (await response.read()).decode()
        assert "[DONE]" not in await said(running, stream=True, provider=order, model="declines")
        async with running.chat(stream=True, provider=order, model="finishes", race=said_itself) as response:
            assert response.headers["x-holeshot-ignored"] == "takeover.slow, keep_rival"  # the operator set neither
            assert "[DONE]" in (await response.read()).decode()
        rows = await running.rows("select win_on, takeover, profile from calls order by id")
        assert [row["takeover"] for row in rows] == ["finished", None, None, "finished"]
        assert {(row["win_on"], row["profile"]) for row in rows} == {("sentence", "voice")}


async def test_a_clients_profile_brings_the_takeover_that_its_model_has_not(serve: Serve) -> None:
    broken: list[Step] = [Delta("It is noon. Any"), Drop()]
    deployments = [{"deployment": f"{name}/m", "continues": "final_message"} for name in ("breaks", "goes")]
    config = in_database(
        speaks={"key_sha256": sha256("hs-speaks"), "profile": "voice"}, reads={"key_sha256": sha256(KEY)}
    )
    config["models"] = {MODEL: {"deployments": deployments, "race": {"mode": "single"}}}
    async with serve(breaks=broken, goes=answer("Anything", " else?"), config=config) as running:
        for key, is_whole in (("hs-speaks", True), (KEY, False)):
            running["breaks"].script = broken
            headers = {"authorization": f"Bearer {key}"}
            body = await said(running, stream=True, provider={"order": ["breaks", "goes"]}, headers=headers)
            assert ("[DONE]" in body) is is_whole, key
        rows = await running.rows("select client, win_on, takeover from calls order by id")
        assert [tuple(row.values()) for row in rows] == [("speaks", "sentence", "finished"), ("reads", "any", None)]


@pytest.mark.parametrize(
    ("race", "takeover", "off"),
    [
        ({"mode": "single"}, None, {"two at once", "third request"}),  # there is none without two
        ({"win_on": "any"}, None, {"first clause", "third request"}),  # which is late by clauses
        ({"third_request": False}, None, {"third request"}),
        ({"whole_sentences": False}, None, {"whole sentences"}),
        ({"keep_rival": False}, None, {"kept rival"}),
        ({"keep_connected": False}, None, {"connections"}),
        ({}, "never", {"takeover", "takeover of slow ones"}),
        ({}, {"slow": False}, {"takeover of slow ones"}),
    ],
)
async def test_one_setting_switches_one_part_of_the_profile_off_and_what_rests_on_it(
    serve: Serve, race: Any, takeover: Any, off: Collection[str]
) -> None:
    async def parts(running: RunningGateway, name: str) -> dict[str, bool]:
        model = running.gateway.context.fleet.models[name]
        async with running.get(f"/leaderboard?explain=1&model={name}") as response:
            [told] = (await response.json())["models"]
        launches = told["explanation"]["launches"]
        return {
            "two at once": [each["delay_s"] for each in launches[:2]] == [0.0, 0.0],
            "first clause": model.race.win_on is WinOn.SENTENCE,
            "third request": any("somebody listens" in each["why"] for each in launches),
            "whole sentences": model.race.whole_sentences,
            "kept rival": model.race.keeps_speakers,
            "connections": model.race.keep_connected,
            "takeover": model.takeover.when is When.ALWAYS,
            "takeover of slow ones": model.takeover.slow is not None,
        }

    deployments = ["alpha/m", "beta/m"]
    without: dict[str, Any] = {"deployments": deployments, "race": {"profile": "voice", **race}}
    if takeover is not None:
        without["takeover"] = takeover
    models = {MODEL: {"deployments": deployments, "race": {"profile": "voice"}}, "without": without}
    async with serve(alpha=None, beta=None, config={"models": models}) as running:
        assert all((await parts(running, MODEL)).values())
        found = await parts(running, "without")
        assert {part for part, is_on in found.items() if not is_on} == set(off)


@pytest.mark.parametrize(("model", "role"), [("given", "failover"), ("asked", "hedge")])
async def test_who_is_asked_once_more_as_all_are_late_is_extra_if_the_request_alone_says_voice(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, model: str, role: str
) -> None:
    monkeypatch.setattr("gateway.steering.planner.RESCUE_MIN_S", 0.02)
    monkeypatch.setattr("gateway.steering.planner.RESCUE_SPOKEN_FACTOR", 0.02)
    deployments = ["alpha/m", "beta/m"]
    config = {
        "models": {
            "given": {"deployments": deployments, "race": {"profile": "voice"}},
            "asked": {"deployments": deployments},
        }
    }
    asked = 0

    def again(_: Any) -> Any:
        nonlocal asked
        asked += 1
        return [Hang()] if asked <= 2 else answer("It is noon. Anything else?")

    async with serve(alpha=None, beta=None, config=config) as running:
        running["alpha"].answers = running["beta"].answers = again
        async with running.chat(stream=True, model=model, race="voice") as response:
            assert "noon" in (await response.read()).decode()
        rows = await running.rows("select role from attempts where outcome = 'won'")
        assert [row["role"] for row in rows] == [role]


async def test_what_is_not_spoken_is_raced_by_the_profile_as_before(serve: Serve) -> None:
    script = [Delta('{"a":'), Delta(" 1}"), Finish(), Done()]
    config = {"models": {MODEL: {"race": {"profile": "voice"}}}}
    async with serve(alpha=script, beta=script, config=config) as running:
        await said(running, stream=True, response_format={"type": "json_object"})
        await said(running)
        await said(running, stream=True, n=2)
        rows = await running.rows("select distinct win_on, sentence_ms from attempts")
        assert [tuple(row.values()) for row in rows] == [("any", None)]


async def test_a_stream_that_falls_behind_its_voice_is_continued(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    crawls = [Raw(SAID), Hang()]
    goes = [Pause(0.1), *answer("there", " is more.")]
    async with serve(crawls=crawls, goes=goes, config=crawling(monkeypatch)) as running:
        whole = await said(running, stream=True, provider={"order": ["crawls", "goes"]})
        assert "is more." in whole
        assert "[DONE]" in whole
        assert (await running.call())["takeover"] == "rescued"
        assert await running.attempts() == [("crawls", "primary", "superseded"), ("goes", "takeover", "won")]
        stopped, went_on = await running.rows("select * from attempts order by provider")
        silence_ms = went_on["launch_offset_ms"] + went_on["sentence_ms"]
        silence_ms -= stopped["launch_offset_ms"] + stopped["last_token_ms"]
        assert min(stopped["speech_pause_ms"], went_on["speech_pause_ms"]) > silence_ms - 0.1  # the time of its text


async def test_the_silence_before_an_answer_breaks_off_or_is_interrupted_is_in_its_row(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.racing.speech.SPOKEN_CHARS_S", 1e6)
    config = {"models": {MODEL: {"race": {"profile": "voice", "mode": "single"}, "takeover": "never"}}}
    async with serve(alone=[Raw(SAID), Pause(0.2), Drop()], config=config) as running:
        assert "[DONE]" not in await said(running, stream=True)
        running["alone"].script = [Raw(SAID), Hang()]
        async with running.chat(stream=True) as response:
            while b"And there" not in await response.content.readline():
                pass
        await until(lambda: running["alone"].counts.disconnects)
        broken, gone = await running.rows("select outcome, speech_pause_ms from attempts order by started_at")
    assert (broken["outcome"], gone["outcome"]) == ("failed", "client_gone")
    assert broken["speech_pause_ms"] > 190
    assert gone["speech_pause_ms"] > 0


async def test_what_is_held_back_is_heard_when_it_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that waits while others are asked in vain is silence to a listener until they have failed."""
    heard, moved, within_s = asyncio.Event(), MovedTime(), 8.0
    config = {**crawling(monkeypatch, within_s=within_s), **moved.runtime}
    async with serve(crawls=None, goes=[Hang()], config=config) as running:
        running["crawls"].script = [
            Raw(SAID),
            Gate(running["goes"].requested),
            Delta(" is more."),
            Gate(heard),
            Finish(),
        ]
        async with running.chat(stream=True, provider={"order": ["crawls", "goes"]}) as response:
            await running["goes"].requested.wait()
            moved.let_pass(within_s)
            while b"is more." not in await response.content.readline():
                pass
            heard.set()
            await response.read()
        stopped, asked = await running.rows("select * from attempts order by provider")
        assert (stopped["outcome"], asked["role"], asked["outcome"]) == ("won", "takeover", "timeout")
        asked_ms = asked["launch_offset_ms"] - stopped["launch_offset_ms"] - stopped["sentence_ms"]
        assert stopped["speech_pause_ms"] > asked_ms + 1000 * within_s - 50  # what the other had


def crawling(monkeypatch: pytest.MonkeyPatch, **takeover: Any) -> dict[str, Any]:
    """Return the settings of a voice that says all text when it comes, so that a stream is soon behind it."""
    monkeypatch.setattr("gateway.racing.rescue.SPOKEN_TICK_S", 0.02)
    monkeypatch.setattr("gateway.racing.rescue.LEAST_S", 0.04)
    monkeypatch.setattr("gateway.racing.speech.SPOKEN_CHARS_S", 1e6)
    deployments = [{"deployment": f"{name}/m", "continues": "final_message"} for name in ("crawls", "goes")]
    race = {"profile": "voice", "mode": "single"}
    takeover = {"when": "always", "slow": {"budget": 1}, **takeover}
    return {"models": {MODEL: {"deployments": deployments, "race": race, "takeover": takeover}}}


# One write: so that it is known what was delivered.
SAID = b"".join(
    b'data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"m","choices":[{"index":0,"delta":%b}]}\n\n'
    % delta
    for delta in (b'{"role":"assistant","content":""}', b'{"content":"Yes. And there"}')
)


@pytest.mark.parametrize(("win_on", "instead"), [("sentence", "answer"), ("valid", "any")])
async def test_several_answers_at_once_are_not_looked_into(serve: Serve, win_on: str, instead: str) -> None:
    tools = [{"type": "function", "function": {"name": "weather"}}]
    async with serve(alpha=None, beta=None) as running:
        await said(running, stream=True, n=2, tools=tools, race={"mode": "race", "win_on": win_on})
        assert (await running.call())["win_on"] == instead


async def test_a_connection_is_open_before_the_first_call(serve: Serve) -> None:
    connected = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    config = {
        "providers": {"near": {"base_url": address, "api_key": "k"}},
        "models": {
            MODEL: {"race": {"profile": "chat"}},
            "speaker": {"deployments": ["near/m"], "race": {"profile": "voice"}},
            "cold": {"deployments": ["alpha/m"], "race": {"profile": "voice", "keep_connected": False}},
        },
    }
    async with server, serve(alpha=None, config=config) as running:
        await connected.wait()
        fleet = running.gateway.context.fleet
        (near,) = fleet.models["speaker"].deployments.values()
        assert set(fleet.to_keep_connected()) == {near.upstream}


async def test_where_a_client_listens_all_that_it_may_ask_stay_connected(serve: Serve) -> None:
    """Of the file, and of the database while the gateway runs, until its key is revoked."""
    config = in_database(team={"key_sha256": sha256(KEY), "profile": "voice", "models": [MODEL]})
    config["models"] = {MODEL: {"deployments": ["alpha/m"]}, "other": {"deployments": ["beta/m"]}}
    async with serve(alpha=None, beta=None, config=config) as running:
        desk, context = Desk(running), running.gateway.context
        alpha, beta = (context.fleet.models[name].deployments for name in (MODEL, "other"))

        def connected() -> set[Any]:
            return {each.provider for each in (*alpha.values(), *beta.values()) if each.upstream in kept()}

        def kept() -> Collection[Any]:
            return context.fleet.to_keep_connected(context.admission.callers)

        assert connected() == {"alpha"}
        await desk.create("speaks", profile="voice", models=["other"])
        assert connected() == {"alpha", "beta"}
        await desk.create("reads", profile="chat")
        assert (await desk.ask("DELETE", "/speaks")).status == 200
        assert connected() == {"alpha"}
