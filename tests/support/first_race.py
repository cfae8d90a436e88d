"""The first races of an installed ``holeshot``, without a key: for the tests, and for `make release`."""

import http.client
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

_STARTED = re.compile(r"http://127\.0\.0\.1:(\d+)/v1")
_IN_PROCESS = """
import asyncio, sys
import holeshot

providers = {name: {"kind": "openai_compatible", "base_url": sys.argv[1]} for name in ("first", "second")}
race = {"mode": "race", "width": 2}
models = {"chat": {"deployments": ["first/demo-chat", "second/demo-chat"], "race": race}}
answer = asyncio.run(holeshot.race("chat", "Why race?", providers=providers, models=models))
print(len(answer.attempts), answer.text)
"""


@contextmanager
def serving(holeshot: Path, folder: Path, environ: Mapping[str, str]) -> Iterator[int]:
    """Start the gateway in ``folder``, with its simulated fleet; yield its port, and stop it.

    Raises:
        AssertionError: it does not start; the message has what it said.

    """
    said = folder / "said"
    environ = {**environ, "HOLESHOT_PORT": "0", "HOLESHOT_LAME_DUCK_S": "0", "PYTHONUNBUFFERED": "1"}
    with said.open("wb") as file:
        process = subprocess.Popen([str(holeshot), "serve"], cwd=folder, env=environ, stdout=file, stderr=file)
    try:
        until = time.monotonic() + PATIENCE_S
        while not (found := _STARTED.search(said.read_text(encoding="utf-8"))):
            assert process.poll() is None, said.read_text(encoding="utf-8")
            assert time.monotonic() < until, said.read_text(encoding="utf-8")
            time.sleep(0.05)
        yield int(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


def asked(port: int, **fields: Any) -> tuple[http.client.HTTPResponse, bytes]:
    """Ask once, with more ``fields``; return the answer and its body."""
    body = json.dumps({"model": "demo-chat", "messages": [{"role": "user", "content": "Why race?"}], **fields})
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer, answer.read()


def raced_in_process(python: Path, folder: Path, environ: Mapping[str, str], port: int) -> str:
    """Race a gateway against itself by ``holeshot.race`` in a program of ``python``; return how many ran, and the text.

    Raises:
        AssertionError: the program failed; the message has what it said.

    """
    command = [str(python), "-c", _IN_PROCESS, f"http://127.0.0.1:{port}/v1"]
    ended = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=False, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()
