"""ClickHouse over its HTTP interface: inserts, acknowledged when they are stored, and statements."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec

from gateway.core.addresses import Address
from gateway.ledger.errors import DatabaseUnreachableError, QueryError
from gateway.ledger.inserts import RowsRejectedError
from gateway.ledger.queries import ResultStream
from providers.http import TlsContexts

_decode = msgspec.json.Decoder(tuple[Any, ...]).decode

CONNECT_TIMEOUT_S = 5.0
INSERT_TIMEOUT_S = 120.0  # long, so that a slow server is not sent the same rows again and again
QUERY_TIMEOUT_S = 60.0
_WORDS_MAX = 300  # of an error: the rest may quote rows
_PORTS = {"http": 8123, "https": 8443}
# The server answers when rows are stored: before, it gathers the inserts of several workers into one part.
_INSERTED = {
    "async_insert": "1",
    "wait_for_async_insert": "1",
    "date_time_input_format": "best_effort",
    "input_format_null_as_default": "1",
}
# For queries: nothing is written; a row that came twice is read once (FINAL for the days that are read, not for all);
# names are columns before they are results, as in Postgres; and numbers are numbers.
_READ = {
    "readonly": "2",
    "final": "1",
    "do_not_merge_across_partitions_select_final": "1",
    "prefer_column_name_to_alias": "1",
    "default_format": "JSONCompactEachRowWithNames",
    "output_format_json_quote_64bit_integers": "0",
    "date_time_output_format": "iso",
}
# Errors that rows cause: values that do not fit the column's type. All other errors are a state of the server that will
# change.
_BAD_ROWS = frozenset({"6", "26", "27", "41", "53", "69", "72", "117", "130", "131", "349", "376", "457"})


class ClickHouse:
    """A server at ``http[s]://[user:password@]host[:port][/database]``; connects when first used."""

    def __init__(self, url: str | Address, tls: TlsContexts | None = None) -> None:
        """``tls``: shared contexts; None: make some."""
        self._address = url if isinstance(url, Address) else Address(url)  # its repr has no password
        parts = urlsplit(self._address.url)
        self.place = f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"  # for messages: without the password
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        if parts.port is None:
            self._url += f":{_PORTS[parts.scheme]}"
        self._database = unquote(parts.path.strip("/")) or "default"
        self._tls = tls or TlsContexts()
        self._session: aiohttp.ClientSession | None = None

    async def insert(self, table: str, columns: Sequence[str], rows: bytes) -> None:
        """Store ``rows``, JSON arrays of the columns' values; all are stored when this returns.

        Raises:
            RowsRejectedError: at least one row is invalid, and none was stored.
            DatabaseUnreachableError: any other failure; perhaps the rows are stored, so try again.

        """
        statement = f"insert into {table} ({', '.join(columns)}) format JSONCompactEachRow"
        async with self._asked({"query": statement} | _INSERTED, rows, INSERT_TIMEOUT_S) as answer:
            if answer.status == 200:  # noqa: PLR2004 - OK
                await answer.read()
                return
            code, words = await _error_of(answer)
        if code in _BAD_ROWS:
            raise RowsRejectedError(words)
        raise DatabaseUnreachableError(f"ClickHouse at {self.place} refuses: {words}")

    async def run(self, statement: str) -> str:
        """Run a statement of ours; return its result as text.

        Raises:
            DatabaseUnreachableError: the statement cannot be run now.

        """
        async with self._asked({"wait_end_of_query": "1"}, statement.encode(), QUERY_TIMEOUT_S) as answer:
            if answer.status == 200:  # noqa: PLR2004 - OK
                return await answer.text()
            _, words = await _error_of(answer)
        raise DatabaseUnreachableError(f"ClickHouse at {self.place} refuses: {words}")

    @asynccontextmanager
    async def asked(self, query: str, timeout_s: float | None) -> AsyncIterator[ResultStream]:
        """Run an operator's query, read-only, and yield the result as a stream.

        Raises:
            QueryError: the query was refused or failed.
            DatabaseUnreachableError: the server cannot be reached.

        """
        settings = _READ
        if timeout_s is not None:  # wait for the end, so that an error comes before the first row
            settings = settings | {"wait_end_of_query": "1", "max_execution_time": f"{timeout_s:g}"}
        async with self._asked(settings, query.encode(), timeout_s) as answer:
            if answer.status != 200:  # noqa: PLR2004 - OK
                raise QueryError((await _error_of(answer))[1])
            batches = _batches(answer.content)
            columns = await anext(batches, [()])
            yield ResultStream(tuple(map(str, columns[0])), _and_then(columns[1:], batches))

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    def _login(self) -> dict[str, str]:
        parts = urlsplit(self._address.url)
        if not parts.username:
            return {}
        return {"x-clickhouse-user": unquote(parts.username), "x-clickhouse-key": unquote(parts.password or "")}

    @asynccontextmanager
    async def _asked(
        self, settings: Mapping[str, str], body: bytes, timeout_s: float | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"user-agent": "holeshot"}, auto_decompress=False)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.post(
                    self._url,
                    params={"database": self._database, **settings},
                    headers=self._login(),
                    data=BytesIO(body),  # written piece by piece
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
                    allow_redirects=False,
                    ssl=self._tls.of(self._url),
                ) as answer,
            ):
                yield answer
        except TimeoutError as error:
            raise DatabaseUnreachableError(f"ClickHouse at {self.place} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            cause = str(error) or type(error).__name__
            raise DatabaseUnreachableError(f"ClickHouse at {self.place} does not answer: {cause}") from error


async def _error_of(answer: aiohttp.ClientResponse) -> tuple[str, str]:
    """Return the code and the first words of ClickHouse's error."""
    words = (await answer.content.read(8 * _WORDS_MAX)).decode("utf-8", "replace").partition("\n")[0][:_WORDS_MAX]
    return answer.headers.get("x-clickhouse-exception-code", ""), f"{answer.status} {words}"


async def _batches(content: aiohttp.StreamReader) -> AsyncIterator[list[tuple[Any, ...]]]:
    """Yield the rows of an answer in batches as they come; the first row has the columns' names."""
    rest = b""
    async for piece in content.iter_any():
        *lines, rest = (rest + piece).split(b"\n")
        if lines:
            yield _rows(lines)
    if rest:
        yield _rows([rest])


def _rows(lines: Sequence[bytes]) -> list[tuple[Any, ...]]:
    try:
        return [_decode(line) for line in lines if line]
    except msgspec.DecodeError as error:  # an error in the middle of an answer is text
        raise QueryError(f"not the rows of a query: {lines[0][:_WORDS_MAX].decode('utf-8', 'replace')}") from error


async def _and_then(
    rows: list[tuple[Any, ...]], batches: AsyncIterator[list[tuple[Any, ...]]]
) -> AsyncIterator[list[tuple[Any, ...]]]:
    yield rows
    async for batch in batches:
        yield batch
