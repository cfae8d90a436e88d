"""People sign in on their laptops: ``holeshot login``, ``holeshot token``, and the programs that ask them."""

import asyncio
import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from providers import how_to_install
from tests.app.gateway.access.test_tokens import asked, trusting
from tests.app.gateway.key_desk import bearer
from tests.app.gateway.running_gateway import RunningGateway, Serve
from tests.identity import Identity
from tests.patience import PATIENCE_S
from tests.support.warm import holeshot

LAPTOP = "the-laptops"


@pytest.fixture
async def issuer() -> AsyncIterator[Identity]:
    async with Identity() as made:
        yield made


class Laptop:
    """A home folder without a keyring, and the command in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.kept = home / ".config" / "holeshot" / "logins.json"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(Path(__file__).parents[4]),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }

    async def run(self, *arguments: str, most_bytes: int | None = None, **environ: str) -> tuple[int | None, str, str]:
        """Return the exit code, standard output and standard error of ``holeshot …``.

        ``most_bytes``: which may be written into any file, as on a disk that is full.
        """
        command = [*holeshot()]
        if most_bytes is not None:  # of a process of its own, no fork of the warm one
            command = ["prlimit", f"--fsize={most_bytes}", "--", sys.executable, "-m", "holeshot"]
        process = await asyncio.create_subprocess_exec(
            *command, *arguments, env={**self.environ, **environ}, cwd=self.home,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()

    async def signed_in(self, running: RunningGateway) -> None:
        code, out, err = await self.run("login", running.url)
        assert (code, out) == (0, ""), err
        assert f"signed in at {running.url}" in err

    async def writes(self, running: RunningGateway, program: str) -> None:
        """Have a program's files say where its tokens come from."""
        code, out, err = await self.run("login", running.url, "--write", program)
        assert (code, out) == (0, ""), err

    def age(self) -> None:
        """Have its tokens come to their end."""
        kept = json.loads(self.kept.read_text())
        for login in kept["logins"].values():
            login |= {"began_at": 0.0, "ends_at": 1.0}
        self.kept.write_text(json.dumps(kept))

    async def token(self) -> str:
        code, out, err = await self.run("token")
        assert (code, err) == (0, "")
        return out.removesuffix("\n")


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    home = tmp_path / "home"
    home.mkdir()
    return Laptop(home)


def with_login(issuer: Identity, /, **login: Any) -> dict[str, Any]:
    return trusting(issuer, login={"client_id": LAPTOP, **login})


async def test_a_person_signs_in_and_programs_get_a_fresh_token(serve: Serve, issuer: Identity, laptop: Laptop) -> None:
    issuer.device = ["authorization_pending", "authorization_pending"]
    async with serve(config=with_login(issuer, parameters={"audience": "https://gateway.example.com"})) as running:
        code, out, err = await laptop.run("login", f"{running.url}/v1")
        assert (code, out) == (0, ""), err
        assert "Open https://idp.example.com/device and type ABCD-EFGH" in err
        assert "refresh-0" not in err
        [begun, *polled] = issuer.forms
        assert begun == {
            "client_id": LAPTOP, "scope": "openid offline_access", "audience": "https://gateway.example.com",
        }  # fmt: skip
        assert [form["grant_type"] for form in polled] == ["urn:ietf:params:oauth:grant-type:device_code"] * 3
        first = await laptop.token()
        assert await asked(running, first) == 200
        assert await laptop.token() == first
        assert issuer.renewals == 0
    assert stat.S_IMODE(laptop.kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(laptop.kept.parent.stat().st_mode) == 0o700


async def test_several_programs_renew_a_token_once_and_keep_what_renews_the_next(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    async with serve(config=with_login(issuer)) as running:
        await laptop.signed_in(running)
        laptop.age()
        tokens = await asyncio.gather(*(laptop.token() for _ in range(20)))
        assert len({*tokens}) == 1
        assert issuer.renewals == 1
        assert json.loads(laptop.kept.read_text())["logins"][running.url]["refresh_token"] == issuer.renewable
        assert await asked(running, tokens[0]) == 200


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        (["access_denied"], "the sign-in was denied in the browser"),
        (["authorization_pending", "expired_token"], "nobody signed in in time"),
        (["unsupported_grant_type"], "refuses: unsupported_grant_type"),
    ],
)
async def test_who_cannot_sign_in_is_told_why(
    serve: Serve, issuer: Identity, laptop: Laptop, answers: list[str], words: str
) -> None:
    issuer.device = answers
    async with serve(config=with_login(issuer)) as running:
        code, _, err = await laptop.run("login", running.url)
        assert code == 1
        assert words in err
        code, out, err = await laptop.run("token", running.url)
        assert (code, out) == (1, "")
        assert f"run `holeshot login {running.url}`" in err


async def test_a_person_who_is_removed_is_told_to_sign_in_and_nothing_is_printed(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    async with serve(config=with_login(issuer)) as running:
        await laptop.signed_in(running)
        laptop.age()
        issuer.renewable = "another"
        code, out, err = await laptop.run("token")
        assert (code, out) == (1, "")
        assert "the sign-in has ended, or was taken back" in err
        assert f"run `holeshot login {running.url}`" in err
        issuer.is_away = True
        code, out, err = await laptop.run("token")
        assert (code, out) == (1, "")
    code, _, err = await laptop.run("login", running.url, "--out")
    assert (code, f"{json.loads(laptop.kept.read_text())['logins']}") == (0, "{}")


async def test_where_people_sign_in_is_told_without_a_key_and_no_model_is(serve: Serve, issuer: Identity) -> None:
    async with serve(config=with_login(issuer)) as running:
        async with running.get("/.well-known/holeshot") as response:
            assert response.status == 200
            told = await response.json()
        assert told == {
            "issuer": issuer.url, "client_id": LAPTOP, "scopes": ["openid", "offline_access"], "sends": "access",
        }  # fmt: skip
        for token in (issuer.token(aud="https://another.example.com"), "of-a-proxy-in-front"):
            async with running.get("/.well-known/holeshot", headers=bearer(token)) as response:
                assert (response.status, await response.json()) == (200, told)
        for _ in range(2):
            async with running.get("/.well-known/holeshot", headers=bearer(issuer.token())) as response:
                assert (await response.json()) == {**told, "models": ["llama"]}
        async with running.get("/v1/models") as response:
            assert response.status == 401
        async with running.get("/v1/models", headers=bearer(issuer.token())) as response:
            assert [each["id"] for each in (await response.json())["data"]] == ["llama"]


async def test_what_renews_the_next_token_is_kept_before_a_token_is_printed(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    """The former one is good no more: who cannot keep the new one must not use what came with it."""
    async with serve(config=with_login(issuer)) as running:
        await laptop.signed_in(running)
        laptop.age()
        code, out, err = await laptop.run("token", most_bytes=0)
        assert (code, out) == (1, "")
        assert "logins.json cannot be written" in err
        assert issuer.renewals == 1
        kept = json.loads(laptop.kept.read_text())["logins"][running.url]
        assert kept["refresh_token"] == "refresh-0"


@pytest.mark.parametrize("program", ["claude-code", "codex", "opencode"])
async def test_what_is_written_into_a_programs_file_and_taken_back_is_shown(
    serve: Serve, issuer: Identity, laptop: Laptop, program: str
) -> None:
    former = {
        "claude-code": '{"env": {"ANTHROPIC_BASE_URL": "https://before.example.com"}}',
        "codex": 'model_provider = "before"\n',
    }
    names = {
        "claude-code": ".claude/settings.json",
        "codex": ".codex/config.toml",
        "opencode": ".config/opencode/opencode.json",
    }
    path = laptop.home / names[program]
    path.parent.mkdir(parents=True)
    if program in former:
        path.write_text(former[program])
    async with serve(config=with_login(issuer)) as running:
        code, _, written = await laptop.run("login", running.url, "--write", program)
        assert code == 0, written
        _, _, undone = await laptop.run("login", running.url, "--undo", program)
    changes, back = (
        [line for line in said.splitlines() if line.startswith(str(laptop.home))] for said in (written, undone)
    )
    expected = {
        "claude-code": f'{path}: env.ANTHROPIC_BASE_URL: "https://before.example.com" -> "{running.url}"',
        "codex": f'{path}: model_provider: "before" -> "holeshot"',
        "opencode": f'{path}: provider.holeshot.name: none -> "Holeshot"',
    }[program]
    assert expected in changes
    assert len(changes) == len(back) > 1
    for change, taken in zip(sorted(changes), sorted(back), strict=True):
        file, place, *values = change.split(": ", 2)  # a file of its own has no place
        before, _, after = "".join(values).partition(" -> ")
        assert taken == (f"{file}: {place}: {after} -> {before}" if values else f"{file}: removed")
    assert f"to take it back: holeshot login {running.url} --undo {program}" in written


async def test_a_gateway_without_a_login_says_so(serve: Serve, issuer: Identity, laptop: Laptop) -> None:
    async with serve(config=trusting(issuer)) as running:
        code, _, err = await laptop.run("login", running.url)
        assert code == 1
        assert "answered 404 at /.well-known/holeshot" in err


# Google: an opaque access token, ``verification_url``, and a client that has a secret though it is public.


async def test_where_access_tokens_are_opaque_the_id_token_counts_for_its_own_client_alone(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    issuer.device_fields = {"verification_url": "https://idp.example.com/device", "interval": 0}
    issuer.claims = {"sub": "ann-1", "email": "ann@example.com", "client_id": "app"}
    more = {"sends": "id", "client_secret": "told-to-all", "scopes": ["openid", "email"]}
    async with serve(config=with_login(issuer, **more)) as running:
        await laptop.signed_in(running)
        assert issuer.forms[-1]["client_secret"] == "told-to-all"
        assert await asked(running, await laptop.token()) == 200
        for name, instead, status in (
            ("another client's", {"aud": "the-page"}, 401),
            ("made for another", {"azp": "other"}, 401),
            ("of several, made for another", {"aud": [LAPTOP, "other"], "azp": "other"}, 401),
            ("of several, made for it", {"aud": [LAPTOP, "other"], "azp": LAPTOP}, 200),
            ("of a logout", {"events": {"http://schemas.openid.net/event/backchannel-logout": {}}}, 401),
            ("a refresh token of Keycloak's", {"typ": "Refresh"}, 401),
        ):
            issuer.instead = instead
            await laptop.signed_in(running)
            assert await asked(running, await laptop.token()) == status, name


async def test_an_id_token_is_no_key_where_laptops_send_access_tokens(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    """Nor where `typ: JWT` takes tokens of no kind, and the audience is the client at which a person signed in."""
    issuer.claims = {"sub": "ann-1", "email": "ann@example.com"}
    async with serve(config=with_login(issuer, sends="id")) as running:
        await laptop.signed_in(running)
        token = await laptop.token()
    people = {"typ": "JWT", "client": "app"}
    for entry in (
        with_login(issuer),
        trusting(issuer, **people),
        trusting(issuer, **people, audience=[LAPTOP]),
        trusting(issuer, typ="JWT", audience=[LAPTOP], claim="sub", clients={"ann-1": "app"}),
    ):
        async with serve(config=entry) as running:
            assert await asked(running, token) == 401
    async with serve(config=trusting(issuer, **people, login={"client_id": LAPTOP, "sends": "id"})) as running:
        assert await asked(running, token) == 200


# The files of programs.


FILES: Mapping[str, tuple[str, str]] = {
    "claude-code": (".claude/settings.json", '{"model": "opus", "env": {"A": "1"}}'),
    "codex": (".codex/config.toml", '# mine\nmodel = "gpt-5.5"\n\n[model_providers.other]\nname = "Other"\n'),
    "opencode": (".config/opencode/opencode.json", '{"theme": "dark"}'),
}


@pytest.mark.parametrize("program", FILES)
async def test_a_program_that_had_no_file_has_none_when_all_is_taken_back(
    serve: Serve, issuer: Identity, laptop: Laptop, program: str
) -> None:
    name, text = FILES[program]
    path = laptop.home / name
    async with serve(config=with_login(issuer)) as running:
        for _ in range(2):
            await laptop.writes(running, program)  # and signs in
        assert path.exists()
        assert (await laptop.run("login", running.url, "--undo", program))[0] == 0
        assert not path.exists()
        path.write_text(text)  # what was taken back says nothing of what comes later
        await laptop.writes(running, program)
        assert (await laptop.run("login", running.url, "--undo", program))[0] == 0
        load = tomllib.loads if name.endswith("toml") else json.loads
        assert load(path.read_text()) == load(text)


@pytest.mark.parametrize("program", FILES)
async def test_a_program_is_set_up_and_taken_back_beside_what_its_file_had(
    serve: Serve, issuer: Identity, laptop: Laptop, program: str
) -> None:
    name, text = FILES[program]
    path = laptop.home / name
    path.parent.mkdir(parents=True)
    path.write_text(text)
    async with serve(config=with_login(issuer)) as running:
        for _ in range(2):  # the second time nothing is left to do, and what an undo brings back stays
            await laptop.writes(running, program)
        written = path.read_text()
        assert running.url in written
        if program == "claude-code":
            helper = json.loads(written)["apiKeyHelper"]
            process = await asyncio.create_subprocess_shell(helper, env=laptop.environ, stdout=asyncio.subprocess.PIPE)
            printed, _ = await process.communicate()
            assert await asked(running, printed.decode().strip()) == 200
            assert json.loads(written)["env"]["A"] == "1"
        if program == "codex":
            found = tomllib.loads(written)
            assert (found["model"], found["model_provider"]) == ("gpt-5.5", "holeshot")
            auth = found["model_providers"]["holeshot"]["auth"]
            assert auth["args"][-2:] == ["token", running.url]
            assert written.startswith("# mine\n")
        plugin = path.parent / "plugins" / "holeshot.js"
        if program == "opencode":
            assert "chat.headers" in plugin.read_text()
        code, _, err = await laptop.run("login", running.url, "--undo", program)
        assert code == 0, err
        load = tomllib.loads if name.endswith("toml") else json.loads
        assert load(path.read_text()) == load(text)
        assert not plugin.exists()


async def test_a_programs_file_that_cannot_be_read_is_left_as_it_is(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    path = laptop.home / FILES["opencode"][0]
    path.parent.mkdir(parents=True)
    path.write_text("{ // a comment\n}")
    async with serve(config=with_login(issuer)) as running:
        code, _, err = await laptop.run("login", running.url, "--write", "opencode")
    assert code == 1
    assert "cannot be read, so nothing was written there" in err
    assert path.read_text() == "{ // a comment\n}"


@pytest.mark.parametrize(("lasts_s", "fresh_ms"), [(3600, 60_000), (300, 30_000), (60, 6_000)])
async def test_programs_keep_a_token_no_longer_than_what_is_left_of_it(
    serve: Serve, issuer: Identity, laptop: Laptop, lasts_s: int, fresh_ms: int
) -> None:
    issuer.lasts_s = lasts_s
    async with serve(config=with_login(issuer)) as running:
        for program in ("claude-code", "codex", "opencode"):
            code, _, err = await laptop.run("login", running.url, "--write", program)
            assert code == 0, err
    found = json.loads((laptop.home / ".claude" / "settings.json").read_text())
    assert found["env"]["CLAUDE_CODE_API_KEY_HELPER_TTL_MS"] == str(fresh_ms)
    auth = tomllib.loads((laptop.home / ".codex" / "config.toml").read_text())["model_providers"]["holeshot"]["auth"]
    assert auth["refresh_interval_ms"] == fresh_ms
    plugin = (laptop.home / ".config" / "opencode" / "plugins" / "holeshot.js").read_text()
    assert f"until = Date.now() + {fresh_ms};" in plugin


async def test_a_keyring_that_hangs_is_waited_for_briefly(serve: Serve, issuer: Identity, laptop: Laptop) -> None:
    module = laptop.home / "hanging_keyring.py"
    module.write_text(
        "import threading\nfrom keyring.backend import KeyringBackend\n\n\nclass Hanging(KeyringBackend):\n"
        "    priority = 1\n    def _hang(self, *_):\n        threading.Event().wait()\n"
        "    set_password = get_password = delete_password = _hang\n"
    )
    path = f"{laptop.environ['PYTHONPATH']}{os.pathsep}{laptop.home}"
    async with serve(config=with_login(issuer)) as running:
        code, _, err = await laptop.run(
            "login", running.url, PYTHON_KEYRING_BACKEND="hanging_keyring.Hanging", PYTHONPATH=path
        )
    assert code == 0, err
    assert "no keyring answers here" in err


# What people's programs start for each token: it must be quick, so it loads none of the server, nor what it needs once.
LOADED = """
import sys
sys.argv = ["holeshot", "token"]
from holeshot.__main__ import main
try:
    main()
except SystemExit:
    pass
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
print(*sorted(name for name in sys.modules if name.startswith(("gateway.", "providers."))), file=sys.stderr)
"""


async def test_a_token_from_the_cache_loads_nothing_but_what_reads_it(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    async with serve(config=with_login(issuer)) as running:
        await laptop.signed_in(running)
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", LOADED], env=laptop.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.count(".") == 2  # a token
    *_, packages, modules = done.stderr.splitlines()
    heavy = {"aiohttp", "sqlalchemy", "asyncpg", "redis", "jwt", "cryptography", "structlog", "yaml", "asyncio"}
    assert not heavy.union({"keyring", "filelock", "oauthlib", "tomlkit"}).intersection(packages.split())
    assert set(modules.split()) <= {
        "gateway.cli", "gateway.cli.main", "gateway.cli.terminal", "gateway.cli.login", "gateway.cli.login.flow",
        "gateway.cli.login.kept", "gateway.cli.login.programs", "gateway.cli.login.verbs", "gateway.core",
        "gateway.core.terminal_text", "providers.upstreams", "providers.upstreams.extras",
    }  # fmt: skip


async def test_without_the_extra_a_kept_token_is_printed_and_who_signs_in_is_told_what_to_install(
    serve: Serve, issuer: Identity, laptop: Laptop
) -> None:
    async with serve(config=with_login(issuer)) as running:
        await laptop.signed_in(running)
        first = await laptop.token()
        for name in ("filelock", "keyring", "oauthlib", "tomlkit"):
            program = f"import sys\nsys.modules[{name!r}] = None\nfrom holeshot.__main__ import main\nmain()"
            for arguments, code, said in ((["token"], 0, first), (["login", running.url], 1, how_to_install("login"))):
                done = await asyncio.to_thread(
                    subprocess.run,
                    [sys.executable, "-c", program, *arguments],
                    env=laptop.environ,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == code, done.stderr
                assert said in done.stdout + done.stderr


WITHOUT_POSIX = """
import sys
for name in ("fcntl", "resource", "termios", "pwd", "grp", "uvloop", "posix_ipc", "tty"):
    sys.modules[name] = None
sys.argv = ["holeshot", "token"]
from gateway.cli.main import main
main()
"""


def test_these_commands_need_nothing_that_windows_lacks(laptop: Laptop) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX], env=laptop.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert "nobody has signed in at URL here" in done.stderr
