"""``holeshot models --prices``: fetches a newer table of prices when an operator asks for it, and never by itself."""

import math
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from gateway.cli.terminal import FAILED, MISUSED, fail, prose, say, waiting, write_json, write_table
from gateway.core.terminal_text import counted
from providers import DatasheetTable, PriceChanged, TableSource, kept, prices_changed, prices_in, table_of

if TYPE_CHECKING:
    from gateway.settings import Settings

_LARGEST_BYTES = 64 * 1024 * 1024
_TIMEOUT_S = 30.0
_MOST_SHOWN = 40
_PER_MTOK = 1e6
_NO_MODEL = frozenset({"sample_spec", "fallback_generalizations"})  # rows that explain the table, or guess

Rows = Mapping[str, Mapping[str, Any]]


def bring(settings: "Settings", match: str | None, *, yes: bool, as_json: bool) -> None:
    """Write the table at ``prices.url`` to ``prices.file``, and show the differences; exit if it is not plausible."""
    if settings.prices.file is None:
        fail(
            "set prices.file, the file that a newer table is written to, as in: prices: { file: prices.json }", MISUSED
        )
    target, address = Path(settings.prices.file), settings.prices.url
    with waiting(f"asking {_host(address)}"):
        given = _read(address)
    before = DatasheetTable.shipped(settings.prices.file).rows()
    rows = _checked(given, _host(address))
    changes = prices_changed(before, rows)
    fallen = [each for each in changes if each.has_fallen]
    lost = _lost(before, rows)
    written = yes or not (fallen or lost)
    if written:
        day = f"{datetime.now(UTC):%Y-%m-%d}"
        _write(target, table_of(rows, TableSource(_host(address), day, day, _shown(address), "", day)))
    new = sorted(rows.keys() - before.keys())
    if as_json:
        write_json({"written": str(target) if written else None, "models": len(rows), "new": new, "changes": changes})
    else:
        _show([each for each in changes if match is None or match.lower() in each.model.lower()])
        say(f"{counted(len(rows), 'model')} at {_host(address)}: {counted(len(new), 'is new', 'are new')}")
    if not written and lost:
        fail(
            f"{_host(address)} lacks {counted(len(lost), 'model')} of {target}, such as {lost[0]}: nothing was written."
            " Say --yes if that is right",
            FAILED,
        )
    if not written:
        fail(
            f"{counted(len(fallen), 'price falls', 'prices fall')} to 0 or below a tenth, such as {fallen[0].model}:"
            " nothing was written. Look at them above, and say --yes if they are right",
            FAILED,
        )
    if not as_json:
        prose(
            f"written to {target}: its prices win over those of this release from the gateway's next reload or start on"
        )


def _read(address: str) -> bytes:
    request = urllib.request.Request(address, headers={"accept": "application/json"})  # noqa: S310 - the settings allow http and https only
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as response:  # noqa: S310 - likewise
            given: bytes = response.read(_LARGEST_BYTES + 1)
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(error, urllib.error.HTTPError):
            error.close()
            reason = f"status {error.code}"
        fail(
            f"no table of prices from {_host(address)} ({reason}): nothing was changed. prices.url may be a copy that"
            " this machine reaches",
            FAILED,
        )
    if len(given) > _LARGEST_BYTES:
        fail(f"{_host(address)} sends more than {_LARGEST_BYTES >> 20} MiB: nothing was changed", FAILED)
    return given


def _lost(before: Rows, rows: Rows) -> list[str]:
    """Return the models whose prices are only in the present file, and not in ``rows``.

    A table may lack any number of other models: their prices stay those of the release.
    """
    release = DatasheetTable.shipped().rows()
    return [
        name
        for name in sorted(before.keys() - rows.keys())
        if before[name] != release.get(name) and prices_in(before[name])
    ]


def _checked(given: bytes, host: str) -> dict[str, dict[str, Any]]:
    """Return the rows of a table; exit if the table is malformed, has an invalid price, or no price at all."""
    try:
        table = msgspec.json.decode(given, type=dict[str, msgspec.Raw])
        rows = {name: msgspec.json.decode(row, type=dict[str, Any]) for name, row in table.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        fail(f"what {host} sends is no table of models in litellm's format: nothing was changed", FAILED)
    sold = {name: row for name, row in rows.items() if name not in _NO_MODEL}
    if not any(map(prices_in, sold.values())):
        fail(f"what {host} sends has no price: nothing was changed", FAILED)
    for name, row in sold.items():
        for path, usd in prices_in(row).items():
            if not (math.isfinite(usd) and usd >= 0):
                fail(f"{host} has a price that is none, {name}: {path}: {usd}; nothing was changed", FAILED)
    return {name: kept(row) for name, row in sorted(sold.items())}


def _write(target: Path, table: bytes) -> None:
    """Replace the file by the table in one step: a gateway reads either the former table, or this one whole."""
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(table)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        fail(f"cannot write {target} ({error.strerror}): nothing was changed", FAILED)


def _show(changes: Sequence[PriceChanged]) -> None:
    if not changes:
        say("no price differs")
        return
    first = sorted(changes, key=lambda each: not each.has_fallen)  # first the prices that need a look
    cells = [[each.model, each.price, _usd(each.before_usd), _usd(each.after_usd)] for each in first[:_MOST_SHOWN]]
    write_table(["model", "price", "$/M before", "$/M now"], cells)
    if len(changes) > _MOST_SHOWN:
        say(f"{len(changes) - _MOST_SHOWN} more: --json lists all")


def _usd(usd: float | None) -> str:
    return "none" if usd is None else f"{usd * _PER_MTOK:g}"


def _host(address: str) -> str:
    return urlsplit(address).netloc.rpartition("@")[2]


def _shown(address: str) -> str:
    """Return an address without the parts that may be secret."""
    parts = urlsplit(address)
    return parts._replace(netloc=_host(address), query="", fragment="").geturl()
