"""Answers of real servers that break in the middle, and are finished by the other server: takeover, for completions.

A relay before each server cuts the connection after some bytes of an answer, once a call. With temperature 0 an answer
that is not cut is known: up to the cut the finished one must be the same. After it a model may say something else: it
reads the same text in other tokens. But no word stands there twice.
"""

import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import openai
import yaml

from tests.real.checks import Checks
from tests.real.llama import MODEL, Server
from tests.real.programs import output, program, running, until
from tests.support.servers import free_port

PROMPTS = ("The sky is blue because", "A gearbox is", "Bees are important, as", "Rain falls when", "Once upon a time")
CUT_AFTER = (900, 2500, 5000, 9000)  # bytes of an answer: an event has some two hundred
MAX_TOKENS = 64
BYTES_PER_CHARACTER = 250  # an event has one or more
_DOUBLED = re.compile(r"\b(\w+) \1\b")
FACTS = "select takeover, takeovers, launched, winner_attempt_id is not null as answered from calls order by started_at"


class Relay:
    """Passes connections on to a server, and ends one in the middle of an answer where the blade says so."""

    def __init__(self, server: Server) -> None:
        address = urlsplit(server.base_url)
        self._to = (str(address.hostname), int(address.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._to)
                threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                if is_answer and Blade.cuts(len(data)):
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes the thread of the other direction, which close() would not


class Blade:
    """How many bytes of answers pass before the next cut; one cut for each time it is set."""

    left: int | None = None

    @classmethod
    def cuts(cls, passed: int) -> bool:
        """Count ``passed`` bytes; return whether this is where the answer breaks."""
        if cls.left is None:
            return False
        cls.left -= passed
        if cls.left > 0:
            return False
        cls.left = None
        return True


def check(checks: Checks, servers: Sequence[Server], folder: Path, say: Callable[[str], None]) -> None:
    """Run it, with a gateway of its own on SQLite in ``folder``."""
    with ExitStack() as stack:
        relays = [Relay(server) for server in servers]
        for relay in relays:
            stack.callback(relay.close)
        environ = _configure(folder, servers, relays)
        output(environ, "migrate")
        port = free_port()
        stack.enter_context(
            running(
                [program(), "serve", "--port", str(port)],
                log=folder / "breaks.log",
                health_url=f"http://127.0.0.1:{port}/health/ready",
                environ=environ,
            )
        )
        say(f"breaking {len(PROMPTS) * len(CUT_AFTER)} answers of the two servers in the middle ...")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        same = cut = doubled = 0
        for prompt in PROMPTS:
            whole = _ask(client, prompt)
            for bytes_ in CUT_AFTER:
                Blade.left = bytes_
                answer = _ask(client, prompt)
                cut += Blade.left is None
                same += answer[: bytes_ // BYTES_PER_CHARACTER] == whole[: bytes_ // BYTES_PER_CHARACTER]
                doubled += len(_DOUBLED.findall(answer)) > len(_DOUBLED.findall(whole))
                Blade.left = None
        calls = len(PROMPTS) * (1 + len(CUT_AFTER))
        until(lambda: len(_facts(environ)) >= calls, 15.0)
        rows = _facts(environ)
        finished = sum(row["takeover"] == "finished" for row in rows)
        checks.that(cut > 0, f"{cut} answers were cut")
        told = sum(row["takeover"] == "failed" for row in rows)
        checks.that(finished + told == cut, f"{finished} were finished by the other; of {told} the error was told")
        checks.that(finished > cut // 2, "most of them were finished")
        checks.that(same == finished, f"{same} are up to the cut as they are without one")
        checks.that(doubled == 0, f"{doubled} have a word twice where they were joined")
        checks.that(len(rows) == calls, f"each call has one row: {len(rows)} rows")


def _ask(client: openai.OpenAI, prompt: str) -> str:
    stream = client.completions.create(model=MODEL, prompt=prompt, max_tokens=MAX_TOKENS, temperature=0, stream=True)
    try:
        return "".join(chunk.choices[0].text for chunk in stream if chunk.choices)
    except openai.APIError as error:
        return f"{type(error).__name__}: {error}"


def _configure(folder: Path, servers: Sequence[Server], relays: Sequence[Relay]) -> dict[str, str]:
    """Write the gateway's configuration; return the environment of its processes."""
    ledger = folder / "breaks.db"
    ledger.unlink(missing_ok=True)
    pairs = list(zip(servers, relays, strict=True))
    settings: dict[str, Any] = {
        "database_url": f"sqlite:///{ledger}",
        "spool_dir": str(folder / "breaks-spool"),
        "lame_duck_s": 0,
        "providers": {
            server.name: {"kind": "openai_compatible", "base_url": f"http://127.0.0.1:{relay.port}/v1"}
            for server, relay in pairs
        },
        "models": {
            MODEL: {
                "deployments": [f"{server.name}/{MODEL}" for server, _ in pairs],
                "race": {"mode": "single", "audit_share": 0},
                "takeover": "always",
            }
        },
    }
    path = folder / "breaks.yaml"
    path.write_text(yaml.safe_dump(settings))
    return {**os.environ, "HOLESHOT_CONFIG": str(path)}


def _facts(environ: Mapping[str, str]) -> list[Mapping[str, Any]]:
    return msgspec.json.decode(output(environ, "sql", "--json", FACTS), type=list[Mapping[str, Any]])
