"""ClickHouse's HTTP interface over chdb, which is ClickHouse's engine in this process: real SQL, another server.

What it does not have is ClickHouse's own: users, the gathering of asynchronous inserts, and replication.
"""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from aiohttp import web

_CODE = re.compile(r"Code: (\d+)")
_KNOWN = frozenset(
    {
        "final",
        "do_not_merge_across_partitions_select_final",
        "prefer_column_name_to_alias",
        "max_execution_time",
        "date_time_output_format",
        "output_format_json_quote_64bit_integers",
    }
)


class StandIn:
    """Runs what is posted, one statement after the other. ``inserts`` are their tables; ``url`` is its address.

    ``hold`` lets the next insert into a table be stored and not answered: ``held`` is set then.
    """

    def __init__(self, folder: Path) -> None:
        self.session: Any = import_module("chdb.session").Session(str(folder))  # not among what other tests need
        self.folder = folder
        self.inserts: list[str] = []
        self.url = ""
        self.held, self.answered = asyncio.Event(), asyncio.Event()
        self._held_table: str | None = None
        self._released = asyncio.Event()
        self._turn = asyncio.Lock()
        self.ask("create database if not exists ledger")
        self.ask("use ledger")

    def ask(self, statement: str, form: str = "TabSeparated") -> bytes:
        """Run a statement and return what it answers."""
        return bytes(self.session.query(statement, form).bytes())

    def hold(self, table: str) -> None:
        """Store the next insert into ``table``, and do not answer it before ``release``."""
        self._held_table = table
        self.held.clear()
        self._released.clear()
        self.answered.clear()

    def release(self) -> None:
        """Answer all inserts again; ``answered`` is set when calls were stored."""
        self._held_table = None
        self._released.set()

    async def answer(self, request: web.Request) -> web.Response:
        """Answer as ClickHouse does."""
        settings, body = dict(request.query), await request.read()
        statement = settings.pop("query", "")
        table = statement.split()[2] if statement.startswith("insert") else None
        async with self._turn:
            try:
                if table is not None:
                    self.inserts.append(table)
                    answer = await asyncio.to_thread(self._insert, statement, body)
                else:
                    answer = await asyncio.to_thread(
                        self._run, (statement + body.decode()).strip().rstrip(";"), settings
                    )
            except Exception as error:  # noqa: BLE001 - chdb raises its own kinds, and tells ClickHouse's errors as text
                code = _CODE.search(str(error))
                headers = {"x-clickhouse-exception-code": code[1] if code else "1002"}
                return web.Response(status=500, text=str(error), headers=headers)
        if table is not None and table == self._held_table:
            self.held.set()
            await self._released.wait()
        elif table == "calls":
            self.answered.set()
        return web.Response(body=answer)

    def _insert(self, statement: str, rows: bytes) -> bytes:
        head, _, form = statement.rpartition(" format ")
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".json") as file:
            file.write(rows)
            file.flush()
            options = "settings date_time_input_format = 'best_effort', input_format_null_as_default = 1"
            return self.ask(f"{head} from infile '{file.name}' {options} format {form}")

    def _run(self, statement: str, settings: dict[str, str]) -> bytes:
        known = {name: value for name, value in settings.items() if name in _KNOWN}
        for name, value in known.items():
            self.ask(f"set {name} = '{value}'")
        try:
            return self.ask(statement, settings.get("default_format", "TabSeparated"))
        finally:
            for name in known:
                self.ask(f"set {name} = default")


@asynccontextmanager
async def clickhouse(folder: Path) -> AsyncIterator[StandIn]:
    """Run a ClickHouse with an empty database ``ledger``."""
    server = StandIn(folder)
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/", server.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://holeshot:secret@{host}:{port}/ledger"
    try:
        yield server
    finally:
        await runner.cleanup()
        server.session.close()
