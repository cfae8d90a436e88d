"""A gateway as its users start it, with the simulated fleet, and calls through it."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import yaml

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
KEYS: Mapping[str, str] = {"root": "hs-browser-root", "guest": "hs-browser-guest", "app": "hs-browser-app"}
ROLES: Mapping[str, str] = {"root": "admin", "guest": "viewer", "app": "client"}
MODEL = "demo-chat"
START_LIMIT_S = 5 * PATIENCE_S  # several start at once


class Installation:
    """A running gateway: its address, its database, and who calls it."""

    def __init__(self, url: str, database: Path) -> None:
        self.url = url
        self._database = database

    def ask(self, path: str, *, key: str | None = None, body: Any = None, method: str | None = None) -> tuple[int, Any]:
        """Send a request; return status and JSON (or text)."""
        headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
                return response.status, _read(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _read(error.read())

    def call(self, *, key: str | None = None, prompt: str = "Why race?", stream: bool = True, **more: Any) -> int:
        """Make a call with ``more`` fields; return its status."""
        messages = [{"role": "user", "content": prompt}]
        body = {"model": MODEL, "stream": stream, "messages": messages, **more}
        return self.ask("/v1/chat/completions", key=key, body=body)[0]

    def calls(self, count: int, *, key: str | None = None) -> list[int]:
        """Make calls at the same time; return their statuses."""
        with ThreadPoolExecutor(max(1, count)) as pool:
            return list(pool.map(lambda number: self.call(key=key, stream=number % 3 > 0), range(count)))

    def stored(self, ids: Iterable[str]) -> None:
        """Wait until the rows of these calls are in the database: they are shipped once a second."""
        wanted = {each.replace("-", "") for each in ids}
        self._await(lambda: wanted <= {str(row[0]).replace("-", "") for row in self.rows("select id from calls")})

    def await_rows(self, sql: str, count: int) -> None:
        """Wait until a query has so many rows."""
        self._await(lambda: len(self.rows(sql)) >= count)

    def await_no_rows(self, sql: str) -> None:
        """Wait until a query has none."""
        self._await(lambda: not self.rows(sql))

    def ended(self, call_id: str) -> tuple[int, int]:
        """Wait until a call is stored; return how many attempts it had, and its status."""
        self.stored([call_id])
        ids = f"'{call_id}', '{call_id.replace('-', '')}'"
        [(launched, status)] = self.rows(f"select launched, status_code from calls where id in ({ids})")
        return launched, status

    def rows(self, sql: str) -> list[Any]:
        """Ask the database itself."""
        with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as connection:
            return connection.execute(sql).fetchall()

    def _await(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, "not stored in time"
            time.sleep(0.1)


@contextmanager
def installed(folder: Path, migrated: Path, **config: Any) -> Iterator[Installation]:
    """Start a gateway with the simulated fleet; stop it when the block ends. ``migrated``: a ledger without rows."""
    folder.mkdir(parents=True)
    path, database = folder / "gateway.yaml", folder / "ledger.db"
    shutil.copy(migrated, database)
    settings = {"port": 0, "database_url": f"sqlite:///{database}", "spool_dir": str(folder / "spool"), **config}
    path.write_text(yaml.safe_dump({**settings, "lame_duck_s": 0, "log_format": "json"}), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.endswith(("_KEY", "_TOKEN"))}
    clean = {name: value for name, value in clean.items() if not name.startswith("HOLESHOT_")}
    command = [sys.executable, "-P", "-m", "gateway.cli", "serve", "--config", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, env={**clean, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE)
    assert process.stderr is not None
    log: list[bytes] = []
    found: list[str] = []
    begun = threading.Event()

    def read(lines: IO[bytes]) -> None:
        for line in lines:
            log.append(line)
            if b'"gateway.started"' in line:
                found.append(json.loads(line)["url"])
                begun.set()
        begun.set()

    reader = threading.Thread(target=read, args=(process.stderr,))
    reader.start()
    try:
        assert begun.wait(START_LIMIT_S), b"".join(log).decode()
        assert found, b"".join(log).decode()
        yield Installation(found[0], database)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        reader.join()
        process.stderr.close()


def people() -> dict[str, Any]:
    """Return settings with an admin, a viewer and a client of a team in the file, and keys in the database."""
    clients = {
        name: {"key_sha256": hashlib.sha256(key.encode()).hexdigest(), "role": ROLES[name]}
        for name, key in KEYS.items()
    }
    clients["app"]["team"] = "research"
    teams = {"research": {"rpm": 600, "usd_per_day": 5, "end_users": {"rpm": 100, "named": {"ann": {"rpm": 200}}}}}
    return {"keys": "database", "clients": clients, "teams": teams, "page": {"signing_key": "0123456789abcdef" * 4}}


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
