"""Adopts the spools of dead workers: ships their entries, and ends what had not ended there."""

import asyncio
import os
import shutil
from pathlib import Path

import structlog

from gateway.ledger.entries import NO_ROWS, Entry
from gateway.ledger.folders import is_moved, orphaned
from gateway.ledger.reader import Reader
from gateway.ledger.shipper import BATCH_MAX_ENTRIES, Shipper
from gateway.ledger.unended import Unended


async def adopt(spool_dir: Path, shipper: Shipper) -> None:
    """Ship the spools of dead workers; what had not ended there becomes ``interrupted``.

    Raises:
        DatabaseUnreachableError: the database is away; what was not shipped stays.

    """
    for folder, lock in orphaned(spool_dir):
        try:
            await _adopt_folder(folder, shipper, was_moved=is_moved(lock))
        finally:
            os.close(lock)


async def _adopt_folder(folder: Path, shipper: Shipper, *, was_moved: bool) -> None:
    reader = Reader(folder)
    unended = Unended()
    adopted, more = 0, True
    while more:
        batch = await asyncio.to_thread(reader.read, BATCH_MAX_ENTRIES)
        for entry in batch.entries:
            unended.note(entry)
        ended = [entry for entry in batch.entries if not isinstance(entry, NO_ROWS)]
        if ended:
            await shipper.ship(ended, reader.set_aside)
        # Nothing is deleted before everything is shipped: if we die now, the next one must still find the starts.
        await asyncio.to_thread(reader.advance, batch)
        adopted += len(ended)
        more = len(batch.entries) == BATCH_MAX_ENTRIES
    if was_moved:  # its owner continued elsewhere, and open calls ended there
        unended = Unended()
    calls, attempts, outages = unended.calls(), unended.attempts(), unended.outages()
    rest: list[Entry] = [*calls, *attempts, *outages]
    for first in range(0, len(rest), BATCH_MAX_ENTRIES):
        await shipper.ship(rest[first : first + BATCH_MAX_ENTRIES], reader.set_aside)
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    structlog.get_logger().info(
        "ledger.spool_adopted",
        spool=folder.name,
        entries=adopted,
        interrupted=len(calls),
        interrupted_audits=len(attempts),
        interrupted_outages=len(outages),
    )
