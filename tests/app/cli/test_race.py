"""holeshot race on scripted providers: its races in this process, the verb itself as a process."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from structlog.testing import capture_logs
from typer.testing import Result

from gateway.cli.race_lanes import Lanes
from gateway.cli.race_run import RacePrompt, open_gateway, run_race
from gateway.cli.race_view import JsonView, PlainView, View
from gateway.core.calls import Mode
from gateway.core.errors import ModelNotFound
from gateway.settings import load
from providers.simulator import Delta, Gate, Hang, RoleOnly, ScriptedProvider, Status, Step, answer
from tests.app.cli.beside import run_beside
from tests.app.gateway.running_gateway import MODEL, serving
from tests.support import warm

RIGHT_KEY = "hs-the-right-key-of-a-client"
Holeshot = Callable[..., Result]
ROOT = Path(__file__).parents[3]
ENVIRON = {"HOLESHOT_CONFIG": "gateway.yaml", "COLUMNS": "100", "LINES": "20", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
QUESTION = RacePrompt("chat", "Why?")


class RacedProviders(NamedTuple):
    """Two providers, of which the second never answers, and the folder with the configuration that races them."""

    fast: ScriptedProvider
    slow: ScriptedProvider
    folder: Path

    def configure(self, old: str, new: str) -> None:
        """Change the configuration."""
        path = self.folder / "gateway.yaml"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    async def heat(self, question: RacePrompt = QUESTION, view: View | None = None) -> Lanes:
        """Run a race in this process."""
        settings = load(self.folder / "gateway.yaml", {})
        async with open_gateway(settings, lambda: None) as gateway:
            return await run_race(gateway, question, view or PlainView())

    async def start(
        self, *arguments: str, stdout: int = asyncio.subprocess.PIPE, stderr: int = asyncio.subprocess.PIPE
    ) -> asyncio.subprocess.Process:
        """Start the verb as a process."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
        return await asyncio.create_subprocess_exec(
            *(*warm.holeshot(), "race", *arguments),
            stdin=asyncio.subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            cwd=self.folder,
            env={**environ, **ENVIRON},
        )

    async def race(self, *arguments: str, stdin: bytes = b"", columns: int = 100) -> tuple[int | str | None, str, str]:
        """Run the verb; return its exit code, standard output and standard error."""
        environ = {**ENVIRON, "COLUMNS": str(columns)}
        return await run_beside(self.folder, ("race", *arguments), environ, stdin)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the ledger."""
        with closing(sqlite3.connect(self.folder / "ledger.db")) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture
async def raced(tmp_path: Path, migrated_file: Path) -> AsyncIterator[RacedProviders]:
    shutil.copy(migrated_file, tmp_path / "ledger.db")
    async with AsyncExitStack() as stack:
        stack.enter_context(capture_logs())  # unless configured, they go to standard output
        fast = await stack.enter_async_context(ScriptedProvider(answer("Hel", "lo", "!")))
        slow = await stack.enter_async_context(ScriptedProvider([RoleOnly(), Hang()]))
        (tmp_path / "gateway.yaml").write_text(
            f"""
database_url: sqlite:///{tmp_path}/ledger.db
spool_dir: {tmp_path}/spool
providers:
  fast: {{ kind: openai_compatible, base_url: {fast.base_url} }}
  slow: {{ kind: openai_compatible, base_url: {slow.base_url} }}
models:
  chat: {{ deployments: [fast/m, slow/m], race: {{ mode: race, width: 2, audit_share: 0 }} }}
"""
        )
        yield RacedProviders(fast, slow, tmp_path)


async def test_where_nobody_watches_the_answer_is_all_that_is_written(raced: RacedProviders) -> None:
    assert await raced.race("Why?") == (0, "Hello!\n", "")


async def test_piped_on_a_terminal_the_lanes_are_told_beside_the_answer(raced: RacedProviders) -> None:
    leader, follower = os.openpty()
    process = await raced.start("Why?", stderr=follower)
    os.close(follower)

    (out, _), told = await asyncio.gather(process.communicate(), asyncio.to_thread(_read_terminal, leader))

    assert (process.returncode, out) == (0, b"Hello!\n")
    lines = told.decode().splitlines()
    for name in ("fast/m", "slow/m"):
        assert any(name in line and line.endswith(": launched") for line in lines)
    assert "2 launched" in lines[-2]
    assert lines[-1].startswith(("the first choice answered", "the first choice was overtaken"))


async def test_the_race_is_in_the_ledger_as_any_other_call(raced: RacedProviders) -> None:
    await raced.heat()

    attempts = raced.rows("select deployment, outcome from attempts order by deployment")
    assert attempts == [("fast/m", "won"), ("slow/m", "lost")]
    ((model, mode, tags),) = raced.rows("select model, mode, tags from calls")
    assert (model, mode) == ("chat", "race")
    assert "holeshot race" in tags


async def test_the_loser_is_cancelled(raced: RacedProviders) -> None:
    raced.fast.script = [Gate(raced.slow.requested), *raced.fast.script]  # who is not asked yet has nothing to drop

    await raced.heat()

    await raced.slow.reach(disconnects=1)
    assert raced.fast.counts.disconnects == 0


async def test_json_is_one_line_with_the_call_its_attempts_and_the_answer(
    raced: RacedProviders, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lanes = await raced.heat(view=JsonView())

    (line,) = capfdbinary.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["answer"], told["winner"], told["error"]) == ("Hello!", "fast/m", None)
    assert lanes.record is not None
    assert told["id"] == lanes.record.id
    assert {attempt["outcome"] for attempt in told["attempts"]} == {"won", "lost"}


async def test_several_races_end_with_who_won_how_often_and_the_prompt_may_be_piped(raced: RacedProviders) -> None:
    code, out, err = await raced.race("-", "-n", "3", "--system", "Be brief.", "--max-tokens", "7", stdin=b"Why?\n")

    assert (code, out) == (0, "Hello!\n" * 3)
    assert "3 races" in err
    (line,) = [line for line in err.splitlines() if line.strip().startswith("fast/m  ")]
    assert line.split()[:4] == ["fast/m", "3", "3", "0"]
    body = raced.fast.received[0].body
    assert [message["content"] for message in body["messages"]] == ["Be brief.", "Why?\n"]
    assert body["max_tokens"] == 7


async def test_deployments_may_be_named_and_the_mode_chosen(raced: RacedProviders) -> None:
    raced.slow.script = answer("Well")

    lanes = await raced.heat(RacePrompt("slow/m", "Why?", mode=Mode.SINGLE))

    assert lanes.answer == "Well"
    assert not raced.fast.received


async def test_ctrl_c_hangs_up_on_everybody_and_is_written_down(raced: RacedProviders) -> None:
    raced.fast.script = [RoleOnly(), Hang()]
    process = await raced.start("Why?")
    await raced.fast.requested.wait()
    await raced.slow.requested.wait()

    process.send_signal(signal.SIGINT)

    await raced.fast.reach(disconnects=1)
    await raced.slow.reach(disconnects=1)
    _, err = await process.communicate()
    assert process.returncode == 130, err
    assert b"Traceback" not in err
    assert raced.rows("select outcome from attempts") == [("client_gone",)] * 2


async def test_a_reader_that_has_had_enough_ends_the_race(raced: RacedProviders) -> None:
    raced.fast.script = [Delta("Hello"), *[Delta(" again")] * 20_000, Hang()]
    reader, writer = os.pipe()
    process = await raced.start("Why?", stdout=writer)
    os.close(writer)
    assert await asyncio.to_thread(os.read, reader, 5) == b"Hello"

    os.close(reader)

    await raced.fast.reach(disconnects=1)
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b"Traceback" not in err


async def test_when_nobody_answers_one_line_names_each_with_its_cause(
    raced: RacedProviders, capsys: pytest.CaptureFixture[str]
) -> None:
    raced.fast.script = raced.slow.script = [Status(503)]

    lanes = await raced.heat()

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[-1] == f"holeshot: {lanes.error}"
    assert lanes.error is not None
    assert lanes.error.startswith("every deployment of 'chat' failed (")
    assert "fast/m: server_error" in lanes.error
    assert "holeshot check --live" in lanes.error


async def test_an_answer_that_breaks_off_is_said_to(raced: RacedProviders, capsys: pytest.CaptureFixture[str]) -> None:
    raced.fast.script = answer("Hel", "lo")[:-3]

    await raced.heat()

    said = capsys.readouterr()
    assert said.out == "Hello\n"
    assert "the answer broke off (upstream_truncated" in said.err.splitlines()[-1]


async def test_where_takeover_is_on_another_finishes_an_answer_that_breaks_off(
    raced: RacedProviders, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    names = "[{ deployment: fast/m, continues: prefix }, { deployment: slow/m, continues: prefix }], takeover: true"
    raced.configure("[fast/m, slow/m]", names)
    raced.fast.script = [Gate(raced.slow.requested), *answer("The quick", " bro")[:-3]]

    class View(JsonView):
        def text_added(self, text: str) -> None:
            if text == " bro":
                raced.slow.script = answer(" brown fox", ".")

    lanes = await raced.heat(view=View())

    told = json.loads(capfdbinary.readouterr().out)
    assert (told["answer"], told["error"], told["winner"]) == ("The quick brown fox.", None, "slow/m")
    assert [(lane.deployment, lane.start.role) for lane in lanes.lanes if lane.won] == [("slow/m", "takeover")]
    assert raced.rows("select takeover from calls") == [("finished",)]


async def test_on_a_terminal_the_lanes_are_drawn_and_the_answer_stays(raced: RacedProviders) -> None:
    leader, follower = os.openpty()
    process = await raced.start("Why?", stdout=follower)
    os.close(follower)

    screen = (await asyncio.to_thread(_read_terminal, leader)).decode()

    await process.communicate()
    assert process.returncode == 0
    last = screen[screen.rindex("fast/m") :]
    assert "●" in last
    assert "Hello!" in last
    assert "2 launched" in last
    assert "the first choice answered" in last or "the first choice was overtaken" in last


async def test_a_database_out_of_reach_costs_no_answer(raced: RacedProviders) -> None:
    raced.configure(f"sqlite:///{raced.folder}/ledger.db", "postgresql://me:s3cret@127.0.0.1:1/ledger")
    raced.configure(f"{raced.folder}/spool", "spool")

    code, out, err = await raced.race("Why?")

    assert (code, out) == (0, "Hello!\n")
    assert err.splitlines()[-1] == "holeshot: the database is unreachable; the rows wait in spool"
    assert "s3cret" not in err


async def test_a_running_gateway_races_with_its_url(raced: RacedProviders, tmp_path: Path) -> None:
    never: list[Step] = [RoleOnly(), Hang()]
    async with serving(tmp_path / "gateway", {"fast": answer("Hel", "lo", "!"), "slow": never}) as running:
        running["fast"].script = [Gate(running["slow"].requested), *running["fast"].script]
        code, out, err = await raced.race("Why?", "--url", running.url, "--width", "2", "--json")
        assert code == 0, err
        told = json.loads(out)
        assert (told["answer"], told["winner"], told["error"]) == ("Hello!", "fast/m", None)
        assert {each["deployment"]: each["outcome"] for each in told["attempts"]} == {"fast/m": "won", "slow/m": "lost"}
        assert (told["model"], told["mode"], told["launched"]) == (MODEL, "race", 2)
        assert told["tags"] == {"from": "holeshot race"}
        assert not raced.fast.received

        code, out, err = await raced.race("Why?", "--url", f"{running.url}/v1/", "-n", "2")
        assert (code, out) == (0, "Hello!\nHello!\n")
        assert "2 races" in err


async def test_a_running_gateways_errors_are_told_as_one_line(raced: RacedProviders, tmp_path: Path) -> None:
    clients = {"me": {"key_sha256": hashlib.sha256(RIGHT_KEY.encode()).hexdigest(), "models": [MODEL]}}
    async with serving(tmp_path / "gateway", {"one": answer("Hel", "lo")[:-3]}, clients=clients) as running:
        code, out, err = await raced.race("Why?", "--url", running.url, "-m", MODEL)
        assert (code, out, "give a client's key with --key or HOLESHOT_KEY" in err) == (1, "", True)
        code, out, err = await raced.race("Why?", "--url", running.url, "--key", RIGHT_KEY, "-m", "nothing")
        assert (code, out, "nothing" in err) == (1, "", True)
        code, out, err = await raced.race("Why?", "--url", running.url, columns=200)  # it asks for the models first
        assert (code, out, "give a client's key with --key or HOLESHOT_KEY" in err) == (1, "", True)
        assert len(err.splitlines()) == 1
        code, out, err = await raced.race("Why?", "--url", running.url, "--key", RIGHT_KEY)
        assert (code, out) == (1, "Hello\n")
        assert "the answer broke off" in err.splitlines()[-1]
    code, _, err = await raced.race("Why?", "--url", running.url)
    assert (code, "no gateway at" in err) == (1, True)


async def test_as_json_a_call_that_a_gateway_refuses_or_breaks_off_has_its_error(
    raced: RacedProviders, tmp_path: Path
) -> None:
    clients = {"me": {"key_sha256": hashlib.sha256(RIGHT_KEY.encode()).hexdigest(), "models": [MODEL]}}
    async with serving(tmp_path / "gateway", {"one": answer("Hel", "lo")[:-3]}, clients=clients) as running:
        at = ("Why?", "--json", "--url", running.url)
        for options, words in (
            (("-m", MODEL), "give a client's key"),
            (("-m", "nothing", "--key", RIGHT_KEY), "nothing"),
            (("-m", MODEL, "--key", RIGHT_KEY), "the answer broke off"),
        ):
            code, out, err = await raced.race(*at, *options)
            assert (code, err) == (1, "")
            assert words in json.loads(out)["error"]
    code, out, err = await raced.race(*at, "-m", MODEL)
    assert (code, err) == (1, "")
    assert json.loads(out)["error"].startswith("no gateway at")


@pytest.mark.parametrize("is_drawn", [True, False])
async def test_races_that_a_gateway_refuses_are_kept_apart_and_not_summed_up(
    raced: RacedProviders, tmp_path: Path, *, is_drawn: bool
) -> None:
    clients = {"me": {"key_sha256": hashlib.sha256(RIGHT_KEY.encode()).hexdigest()}}
    async with serving(tmp_path / "gateway", {"one": answer("Hello")}, clients=clients) as running:
        leader, follower = os.openpty()
        at = ("Why?", "--url", running.url, "-m", MODEL, "-n", "2")
        process = await raced.start(*at, stdout=follower if is_drawn else asyncio.subprocess.PIPE, stderr=follower)
        os.close(follower)
        screen, _ = await asyncio.gather(asyncio.to_thread(_read_terminal, leader), process.communicate())

    lines = re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\r", b"", screen).splitlines()
    first, second = (number for number, line in enumerate(lines) if line.startswith(b"holeshot: "))
    assert b"" in lines[first:second]
    assert (process.returncode, b"races" in screen) == (1, False)


async def test_a_refused_call_is_one_line_on_a_terminal_too(raced: RacedProviders, tmp_path: Path) -> None:
    clients = {"me": {"key_sha256": hashlib.sha256(RIGHT_KEY.encode()).hexdigest()}}
    async with serving(tmp_path / "gateway", {"one": answer("Hello")}, clients=clients) as running:
        leader, follower = os.openpty()
        process = await raced.start("Why?", "--url", running.url, "-m", MODEL, stdout=follower)
        os.close(follower)
        screen, (_, err) = await asyncio.gather(asyncio.to_thread(_read_terminal, leader), process.communicate())

    assert process.returncode == 1
    assert len(err.splitlines()) == 1
    assert b"give a client's key" in err
    assert screen.endswith(b"\x1b[2K")  # the last frame was erased, and no empty picture follows


async def test_who_closes_the_output_of_a_race_at_a_gateway_hears_of_no_missing_gateway(
    raced: RacedProviders, tmp_path: Path
) -> None:
    many: list[Step] = [Delta("Hello\n"), *[Delta("again\n")] * 20_000, Hang()]  # nothing is left to write at the end
    async with serving(tmp_path / "gateway", {"one": many}) as running:
        reader, writer = os.pipe()
        process = await raced.start("Why?", "--url", running.url, "-m", MODEL, stdout=writer)
        os.close(writer)
        assert await asyncio.to_thread(os.read, reader, 5) == b"Hello"
        os.close(reader)
        _, err = await process.communicate()
        assert (process.returncode, err) == (1, b"")

        full = os.open("/dev/full", os.O_WRONLY)
        process = await raced.start("Why?", "--url", running.url, "-m", MODEL, stdout=full)
        os.close(full)
        _, err = await process.communicate()
        assert process.returncode == 1
        assert err == b"holeshot: No space left on device: what was to be written is not complete\n"


_BEGUN = b'data: {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}\n\n'


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"40\r\n" + b'data: {"choices',
        b"no length\r\n",
        b'f\r\ndata: {"choices\r\n0\r\n\r\n',
    ],
    ids=["between two chunks", "in a chunk", "with a chunk that is none", "in an event"],
)
async def test_a_gateway_that_goes_in_the_middle_of_an_answer_leaves_its_beginning(
    raced: RacedProviders, rest: bytes
) -> None:
    async def answer_half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"%x\r\n%b\r\n" % (len(_BEGUN), _BEGUN) + rest)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer_half, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        code, out, err = await raced.race("Why?", "--url", url, "-m", MODEL, "--json")

    assert (code, err) == (1, "")
    told = json.loads(out)
    assert told["answer"] == "Hel"
    assert told["error"].startswith("the answer broke off (")


async def test_a_refusal_costs_no_table_of_the_races_that_ran(raced: RacedProviders, tmp_path: Path) -> None:
    clients = {
        "me": {
            "key_sha256": hashlib.sha256(RIGHT_KEY.encode()).hexdigest(),
            "role": "admin",
            "rpm": 2,
        }
    }
    async with serving(tmp_path / "gateway", {"one": answer("Hello")}, clients=clients, in_one_minute=True) as running:
        at = ("Why?", "--url", running.url, "--key", RIGHT_KEY, "-m", MODEL)
        code, out, err = await raced.race(*at, "-n", "3")

    assert (code, out) == (1, "Hello\nHello\n")
    assert "2 races" in err
    assert sum(line.startswith("holeshot: ") for line in err.splitlines()) == 1


async def test_an_unknown_model_is_one_line_with_near_names(raced: RacedProviders) -> None:
    with pytest.raises(ModelNotFound, match="'chatt' does not exist; did you mean 'chat'"):
        await raced.heat(msgspec.structs.replace(QUESTION, model="chatt"))


async def test_without_a_model_it_says_how_to_name_one(raced: RacedProviders) -> None:
    path = raced.folder / "gateway.yaml"
    path.write_text(path.read_text().partition("models:")[0])

    assert await raced.race("Why?") == (
        2,
        "",
        "holeshot: no model is configured; name deployments: -m provider/model,provider/model\n",
    )


async def test_without_any_provider_simulated_ones_race_and_it_says_so(raced: RacedProviders) -> None:
    path = raced.folder / "gateway.yaml"
    path.write_text(path.read_text().partition("providers:")[0])

    code, out, err = await raced.race("Why?", "--max-tokens", "2", "--width", "5")

    assert code in (0, 1)  # they fail now and then, as real ones do
    assert err.startswith("no provider keys were found: racing simulated providers\n")
    assert bool(out) == (code == 0 or "the answer broke off" in err)


@pytest.mark.parametrize(
    ("proxy", "spared", "options"),
    [
        ("http://127.0.0.1:9", "", ()),
        ("http://127.0.0.1:9", "intranet.example", ()),
        ("socks5://127.0.0.1:9", "", ("-m", "demo-chat")),
    ],
)
async def test_the_simulated_ones_are_reached_past_the_proxy_of_an_office(
    raced: RacedProviders, monkeypatch: pytest.MonkeyPatch, proxy: str, spared: str, options: tuple[str, ...]
) -> None:
    for name, value in (("http_proxy", proxy), ("no_proxy", spared)):
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name.upper(), raising=False)
    path = raced.folder / "gateway.yaml"
    path.write_text(path.read_text().partition("providers:")[0])

    await raced.race("Why?", "--max-tokens", "2", "--width", "5", *options)

    kinds = {kind for (kind,) in raced.rows("select error_kind from attempts")}
    assert kinds
    assert "connect_error" not in kinds


async def test_a_proxy_of_a_kind_that_is_not_supported_is_one_line(
    raced: RacedProviders, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("http_proxy", "socks5://127.0.0.1:9"), ("no_proxy", "")):
        monkeypatch.setenv(name, value)
        monkeypatch.delenv(name.upper(), raising=False)
    told = "holeshot: HTTP_PROXY must be http://host:port or https://host:port; other kinds are not supported\n"
    assert await raced.race("Why?") == (1, "", told)
    assert await raced.race("Why?", "-m", "chat") == (1, "", told)


async def test_an_unknown_model_is_refused_before_anything_is_started(raced: RacedProviders) -> None:
    path = raced.folder / "gateway.yaml"
    path.write_text(path.read_text().partition("providers:")[0])

    refused = "holeshot: the model 'demo-chta' does not exist; did you mean 'demo-chat' or 'demo-embed'?\n"
    assert await raced.race("Why?", "-m", "demo-chta") == (1, "", refused)  # nothing of simulated providers


def test_an_empty_prompt_is_refused(holeshot: Holeshot) -> None:
    result = holeshot("race", "-", stdin=" \n")

    assert (result.exit_code, result.stderr) == (2, "holeshot: the prompt is empty\n")


def test_a_width_without_a_race_makes_no_sense(holeshot: Holeshot) -> None:
    result = holeshot("race", "Why?", "--mode", "hedge", "--width", "3")

    assert (result.exit_code, result.stderr) == (2, "holeshot: --width goes with --mode race, not hedge\n")


def _read_terminal(leader: int) -> bytes:
    """Return all that is written to a terminal until its last writer has gone, which Linux tells by an error."""
    read = bytearray()
    try:
        while block := os.read(leader, 65536):
            read += block
    except OSError:
        pass
    finally:
        os.close(leader)
    return bytes(read)
