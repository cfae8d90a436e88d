"""``holeshot login``: what it does to the files of programs, and to whom it gives a token."""

import asyncio
import base64
import json
import stat
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import keyring
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from keyring.backend import KeyringBackend

from gateway.cli.login import flow, kept, programs

URL = "https://llm.example.com"
PROVIDER = flow.LoginProvider(
    "https://idp.example.com", "laptops", "https://idp.example.com/d", "https://idp.example.com/t"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# mine\n[a]\nb = 1 # because\n[[hooks.x]]\ny = 1\n",
        "model_providers = { x = { name = 'X' } }\nmodel = 'a'\n",
        "[model_providers.holeshot]\nname = 'mine'\n[model_providers.holeshot.http_headers]\nA = 'b'\n",
        "[model_providers.x]\nname = 'q'\n[profiles.b]\nmodel = 'm'\n[model_providers.y]\nname = 'z'\n",
    ],
)
def test_codex_is_given_all_that_it_needs_however_its_file_is_written(home: Path, text: str) -> None:
    path = home / "config.toml"
    path.write_text(text)
    changes = programs.write("codex", URL, ["holeshot"], {})
    found = tomllib.loads(path.read_text())
    assert found["model_provider"] == "holeshot"
    mine = found["model_providers"]["holeshot"]
    auth = {"command": "holeshot", "args": ["token", URL], "timeout_ms": 15_000, "refresh_interval_ms": 60_000}
    assert {"name": "Holeshot", "base_url": f"{URL}/v1", "wire_api": "responses", "auth": auth}.items() <= mine.items()
    assert programs.write("codex", URL, ["holeshot"], {}) == []
    programs.undo(changes)
    assert tomllib.loads(path.read_text()) == tomllib.loads(text)


MODELS: programs.Models = {
    "small": {"context_length": 30_000, "top_provider": {"context_length": 30_000, "max_completion_tokens": 4_000}},
    "seeing": {"architecture": {"input_modalities": ["text", "image", "file"], "output_modalities": ["text"]}},
    "blind": {"context_length": 9_000, "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]}},
    "unknown": {},
}


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ('model = "small"', 30_000),
        ('model = "small"\nmodel_context_window = 20_000', 20_000),
        ('model = "unknown"', None),
        ('model = "another"', None),
        ("", None),
    ],
)
def test_codex_is_told_how_much_its_model_holds(home: Path, text: str, window: int | None) -> None:
    path = home / "config.toml"
    path.write_text(text)
    changes = programs.write("codex", URL, ["holeshot"], MODELS)
    assert tomllib.loads(path.read_text()).get("model_context_window") == window
    assert programs.write("codex", URL, ["holeshot"], MODELS) == []
    programs.undo(changes)
    assert tomllib.loads(path.read_text()) == tomllib.loads(text)


def test_opencode_is_told_what_a_model_holds_and_that_it_sees(home: Path) -> None:
    programs.write("opencode", URL, ["holeshot"], MODELS)
    told = json.loads((home / "opencode" / "opencode.json").read_text())["provider"]["holeshot"]["models"]
    assert told == {
        "small": {"limit": {"context": 30_000, "output": 4_000}},
        "seeing": {"attachment": True, "modalities": {"input": ["text", "image", "pdf"], "output": ["text"]}},
        "blind": {"attachment": False, "modalities": {"input": ["text"], "output": ["text"]}},
        "unknown": {},
    }


def test_a_file_that_would_say_something_else_is_left_as_it_is(home: Path) -> None:
    path = home / "config.toml"
    text = "model_providers.x.name = 'X'\n[a]\nb = 1\n"
    path.write_text(text)
    with pytest.raises(flow.LoginError, match="edit it by hand"):
        programs.write("codex", URL, ["holeshot"], {})
    assert path.read_text() == text


def test_a_link_stays_one_and_who_may_read_a_file_stays_so(home: Path) -> None:
    kept_at, path = home / "dotfiles.json", home / "settings.json"
    text = '{"a":  1}'
    kept_at.write_text(text)
    kept_at.chmod(0o600)
    path.symlink_to(kept_at)
    changes = programs.write("claude-code", URL, ["holeshot"], {})
    assert path.is_symlink()
    assert json.loads(kept_at.read_text())["env"]["ANTHROPIC_BASE_URL"] == URL
    assert stat.S_IMODE(kept_at.stat().st_mode) == 0o600
    programs.undo(changes)
    assert path.is_symlink()
    assert json.loads(kept_at.read_text()) == json.loads(text)
    kept_at.write_text(text)
    assert programs.undo(changes) == []
    assert kept_at.read_text() == text


@pytest.mark.parametrize("program", programs.PROGRAMS)
def test_in_an_empty_home_folder_an_undo_leaves_no_file(home: Path, program: str) -> None:
    changes = programs.write(program, URL, ["holeshot"], {"llama": {"id": "llama"}})
    assert [path for path in home.rglob("*") if path.is_file()]
    programs.undo(changes)
    assert [path for path in home.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("text", ["# mine\n", "[a]\n"])
def test_a_file_of_which_anything_was_there_stays(home: Path, text: str) -> None:
    path = home / "config.toml"
    path.write_text(text)
    programs.undo(programs.write("codex", URL, ["holeshot"], {}))
    assert path.read_text().strip() == text.strip()


def test_of_two_files_none_is_written_if_one_cannot_be(home: Path) -> None:
    path, text = home / "opencode" / "opencode.json", '{"theme": "dark"}'
    path.parent.mkdir()
    path.write_text(text)
    (path.parent / "plugins").touch()  # where a folder is needed
    with pytest.raises(flow.LoginError, match="cannot be written"):
        programs.write("opencode", URL, ["holeshot"], {})
    assert json.loads(path.read_text()) == json.loads(text)


# Tokens.


def id_token(**claims: Any) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize(
    ("sends", "token", "lasts_s"),
    [
        ("id", id_token(iat=9_000, exp=12_600), 3600.0),  # by a clock that is not this machine's
        ("id", id_token(iat=9_000, exp=99_000), 5000.0),
        ("id", "opaque", 5000.0),
        ("access", id_token(iat=9_000, exp=12_600), 5000.0),
    ],
)
async def test_an_id_token_is_good_for_as_long_as_it_says(sends: str, token: str, lasts_s: float) -> None:
    async def answer(_: web.Request) -> web.Response:
        told = {"access_token": token, "id_token": token, "token_type": "Bearer", "expires_in": 5000}
        return web.json_response(told)

    app = web.Application()
    app.router.add_post("/t", answer)
    async with TestServer(app) as server:
        provider = flow.LoginProvider("i", "laptops", "d", str(server.make_url("/t")), sends=sends)
        tokens = await asyncio.to_thread(flow.renew, provider, "refresh", unix_clock=lambda: 0.0)
    assert tokens.ends_at == lasts_s


async def test_a_token_is_given_to_the_gateway_and_not_to_where_it_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nor to a proxy, where the gateway is on this machine
    monkeypatch.delenv("no_proxy", raising=False)
    seen: list[tuple[str, str | None]] = []

    async def note(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("authorization")))
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/{path}", note)
    async with TestServer(app) as server:
        status, _ = await asyncio.to_thread(flow.ask, str(server.make_url("/models")), "the-token")
    assert (status, seen) == (302, [("/models", "Bearer the-token")])


class Ring(KeyringBackend):
    """A keyring in memory."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # keyring writes no types there
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


async def test_what_answers_with_no_http_is_told_in_a_line() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"SSH-2.0-x\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(flow.LoginError, match="cannot be reached"):
            await asyncio.to_thread(flow.provider_of, f"http://127.0.0.1:{port}")


@pytest.fixture
def ring() -> Iterator[Ring]:
    before, made = keyring.get_keyring(), Ring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def test_a_sign_in_that_nothing_renews_is_not_renewed_as_the_one_before_it(home: Path, ring: Ring) -> None:
    with kept.locked():
        assert kept.keep(URL, PROVIDER, flow.LoginTokens("anns", 1.0, "renews-ann"), 0.0)
    assert "renews-ann" not in (home / "holeshot" / "logins.json").read_text()
    with kept.locked():
        assert not kept.keep(URL, PROVIDER, flow.LoginTokens("bobs", 1.0, None), 0.0)
    assert ring.kept == {}
    with pytest.raises(flow.LoginError, match="nothing renews it"):
        kept.fresh_token(URL, unix_clock=time.time)


class Hanging(Ring):
    """A keyring that nobody unlocks, from some time on. ``asked``: how often it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.is_locked, self.unlocked = 0, True, threading.Event()

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        if self.is_locked:
            self.unlocked.wait()
        return super().get_password(service, username)

    def set_password(self, service: str, username: str, password: str) -> None:
        self.asked += 1
        if self.is_locked:
            self.unlocked.wait()
        super().set_password(service, username, password)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    before, made = keyring.get_keyring(), Hanging()
    monkeypatch.setattr(kept, "_PATIENCE_S", 0.01)
    keyring.set_keyring(made)
    yield made
    made.unlocked.set()
    keyring.set_keyring(before)


async def test_a_keyring_that_hangs_at_a_sign_in_is_asked_once_and_not_again_by_its_tokens(
    home: Path, hanging: Hanging
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"access_token": "second", "refresh_token": "renews-ann-again"})

    app = web.Application()
    app.router.add_post("/token", answer)
    async with TestServer(app) as server:
        provider = msgspec.structs.replace(PROVIDER, token_endpoint=str(server.make_url("/token")))
        with kept.locked():
            assert not kept.keep(URL, provider, flow.LoginTokens("first", 1.0, "renews-ann"), 0.0)
        assert hanging.asked == 1
        assert await asyncio.to_thread(kept.fresh_token, URL) == "second"
    assert hanging.asked == 1
    assert "renews-ann-again" in (home / "holeshot" / "logins.json").read_text()


def test_a_keyring_that_hangs_later_is_told_and_remembered_for_a_minute(home: Path, hanging: Hanging) -> None:
    hanging.is_locked = False
    with kept.locked():
        assert kept.keep(URL, PROVIDER, flow.LoginTokens("first", 1.0, "renews-ann"), 0.0)
    hanging.is_locked, asked = True, hanging.asked
    for now_s, more in ((1000.0, 1), (1059.0, 1), (1061.0, 2)):
        with pytest.raises(flow.LoginError, match="does not answer: unlock it"):
            kept.fresh_token(URL, unix_clock=lambda now_s=now_s: now_s)  # type: ignore[misc] # a default binds it
        assert hanging.asked == asked + more


POLLS: Mapping[str, tuple[Mapping[str, Any], list[tuple[int, str]], list[float]]] = {  # the device, answers, and pauses
    "no interval": ({}, [(200, "")], [5.0]),
    "no pause": ({"interval": 0}, [(400, "authorization_pending")] * 2 + [(200, "")], [0.0, 1.0, 1.0]),
    "slow down": ({"interval": 2}, [(400, "slow_down"), (400, "authorization_pending"), (200, "")], [2.0, 7.0, 7.0]),
    "away": ({"interval": 1}, [(503, "<html>"), (500, "server_error"), (429, ""), (200, "")], [1.0, 6.0, 11.0, 16.0]),
}


@pytest.mark.parametrize(("device", "answers", "pauses"), POLLS.values(), ids=POLLS)
async def test_a_provider_is_asked_as_often_as_it_says_and_one_that_fails_ends_no_sign_in(
    device: Mapping[str, Any], answers: list[tuple[int, str]], pauses: list[float]
) -> None:
    told = iter(answers)

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/device":
            return web.json_response({"device_code": "d", "user_code": "u", "verification_uri": "https://x/", **device})
        status, error = next(told)
        body = {"access_token": "the-token"} if status == 200 else {"error": error}
        if error == "<html>":
            return web.Response(status=status, text=error)
        return web.json_response(body, status=status)

    slept: list[float] = []
    app = web.Application()
    app.router.add_post("/{path}", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        provider = msgspec.structs.replace(
            PROVIDER, device_endpoint=f"{url}/device", token_endpoint=f"{url}/token", sends="access"
        )
        begun = await asyncio.to_thread(flow.begin, provider)
        tokens = await asyncio.to_thread(
            flow.wait, provider, begun, sleep=slept.append, clock=lambda: 0.0, unix_clock=lambda: 0.0
        )
    assert (tokens.token, slept) == ("the-token", pauses)


@pytest.mark.parametrize(
    ("expires_in", "interval", "asked"),
    [(12, 5, 3), ("12", 5, 3), (None, 60, 10), (0, 5, 0), (-5, 5, 0), ("soon", 60, 10)],
)
async def test_nobody_is_waited_for_longer_than_the_provider_takes_the_code(
    expires_in: Any, interval: int, asked: int
) -> None:
    polls = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal polls
        if request.path == "/device":
            told = {"device_code": "d", "user_code": "u", "verification_uri": "https://x/"}
            return web.json_response(told | {"expires_in": expires_in, "interval": interval})
        polls += 1
        return web.json_response({"error": "authorization_pending"}, status=400)

    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    app = web.Application()
    app.router.add_post("/{path}", answer)
    async with TestServer(app) as server:
        url = str(server.make_url("")).rstrip("/")
        provider = msgspec.structs.replace(PROVIDER, device_endpoint=f"{url}/device", token_endpoint=f"{url}/token")
        device = await asyncio.to_thread(flow.begin, provider)
        with pytest.raises(flow.LoginError, match="nobody signed in in time"):
            await asyncio.to_thread(flow.wait, provider, device, sleep=sleep, clock=lambda: now_s)
    assert polls == asked


NO_TOKENS = (
    "", "[]", "null", "5", '"x"', "{}", "<html>Bad Request</html>", "Bad Request", '{"error": null}',
    '{"error": ["a"]}', '{"error": {"code": 401, "message": "no"}}', '{"error": "x\\u001b[31m"}',
    '{"error_description": "no"}',
    '{"access_token": 5}', '{"access_token": ""}', "error=\x1b[31m", "access_token=&x=y",
)  # fmt: skip


@pytest.mark.parametrize("status", [200, 302, 400, 401])
@pytest.mark.parametrize("body", NO_TOKENS)
async def test_an_answer_that_has_no_token_is_told_in_a_line_that_names_the_provider(body: str, status: int) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_post("/t", answer)
    async with TestServer(app) as server:
        provider = msgspec.structs.replace(PROVIDER, token_endpoint=str(server.make_url("/t")))
        device = flow.Device("d", "u", "https://x/", None, 600.0, 0.0)
        for ask in (
            lambda: flow.wait(provider, device, sleep=lambda _: None, clock=lambda: 0.0),
            lambda: flow.renew(provider, "refresh"),
        ):
            with pytest.raises(flow.LoginError) as told:
                await asyncio.to_thread(ask)
            assert str(told.value).startswith(PROVIDER.issuer)
            assert str(told.value).isprintable()
            assert "missing_token" not in str(told.value)


@pytest.mark.parametrize(
    ("body", "ends_at"),
    [
        ('{"access_token": "a", "expires_in": "3600"}', 3600.0),
        ('{"access_token": "a", "scope": 5, "token_type": 5}', 300.0),
        ('{"access_token": "a", "expires_in": [1], "error": null}', 300.0),
        ('{"access_token": "a", "expires_in": 1e999, "error": ""}', flow.LONGEST_S),
        ('{"access_token": "a", "expires_in": ' + "9" * 400 + "}", flow.LONGEST_S),
        ('{"access_token": "a", "expires_in": NaN}', 0.0),
        ("access_token=a&expires_in=3600", 3600.0),
    ],
)
async def test_a_token_is_taken_whatever_odd_is_said_beside_it_and_can_be_kept(
    home: Path, body: str, ends_at: float
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body)

    app = web.Application()
    app.router.add_post("/t", answer)
    async with TestServer(app) as server:
        provider = msgspec.structs.replace(PROVIDER, token_endpoint=str(server.make_url("/t")))
        tokens = await asyncio.to_thread(flow.renew, provider, "former", unix_clock=lambda: 0.0)
    assert (tokens.token, tokens.ends_at, tokens.refresh_token) == ("a", ends_at, "former")
    kept.keep(URL, provider, tokens, 0.0, in_file=True)
    assert kept.read().logins[URL].ends_at == ends_at


@pytest.mark.parametrize(
    "told",
    [
        {"device_code": None},
        {"user_code": None},
        {"device_code": 5},
        {"user_code": "A\x1b]0;x"},
        {"verification_uri": "https://x/\n$ rm"},
        {"verification_uri": None},
    ],
)
async def test_a_sign_in_that_lacks_what_a_person_needs_does_not_begin(told: Mapping[str, Any]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"device_code": "d", "user_code": "u", "verification_uri": "https://x/", **told})

    app = web.Application()
    app.router.add_post("/d", answer)
    async with TestServer(app) as server:
        provider = msgspec.structs.replace(PROVIDER, device_endpoint=str(server.make_url("/d")))
        with pytest.raises(flow.LoginError, match="begins no sign-in") as refused:
            await asyncio.to_thread(flow.begin, provider)
        assert str(refused.value).isprintable()


def test_a_folder_that_cannot_be_written_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    with pytest.raises(flow.LoginError, match="cannot be written"), kept.locked():
        pass


class HeldOnWindows(PermissionError):
    """What Windows answers while another process has the file open."""

    winerror = 5


@pytest.mark.parametrize("name", ["read_bytes", "replace"])
def test_a_file_that_another_program_reads_just_now_is_waited_for_on_windows(
    home: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kept.write(kept.LoginFile(keyring_hung_at=1.0))
    held, of_path = [HeldOnWindows(13, "Access is denied")] * 2, getattr(Path, name)

    def refusing(path: Path, *arguments: Any) -> Any:
        if held:
            raise held.pop()
        return of_path(path, *arguments)

    monkeypatch.setattr(Path, name, refusing)
    kept.write(kept.LoginFile(keyring_hung_at=2.0))
    assert kept.read().keyring_hung_at == 2.0
    assert not held
    assert [path.name for path in kept.folder().iterdir()] == ["logins.json"]
