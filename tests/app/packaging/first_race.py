"""The first race of an installed ``holeshot``, without a key: for the tests, and for `make release`."""

import http.client
import json
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE_S

_STARTED = re.compile(r"http://127\.0\.0\.1:(\d+)/v1")


def first_race(holeshot: Path, folder: Path, environ: Mapping[str, str]) -> tuple[http.client.HTTPResponse, Any]:
    """Start the gateway in ``folder``, ask once, and stop it; return the answer, and its body as JSON.

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
        body = json.dumps({"model": "demo-chat", "messages": [{"role": "user", "content": "Why race?"}]})
        with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=PATIENCE_S)) as connection:
            connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer, json.loads(answer.read())
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)
