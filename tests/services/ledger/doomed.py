"""A gateway reduced to its ledger, to be killed: ``python -m tests.services.ledger.doomed DATABASE_URL SPOOL_DIR``.

Records calls, says on stdout as JSON which of them ended and which are open, and then waits for its end.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from gateway.ledger import Ledger
from tests.unit.ledger.records import raced_call, start_of


async def main(url: str, spool_dir: Path) -> None:
    ledger = Ledger(url, spool_dir, "doomed")
    await ledger.start()
    ended, still_open = [], []
    for number in range(60):
        record = raced_call()
        ledger.call_started(start_of(record))
        if number % 20 == 0:
            still_open.append(record.id)  # some of them in segments that are shipped and deleted
        else:
            ledger.call_finished(record)
            ended.append(record.id)
        if number == 30:
            ledger._spool.rotate(now_s=0.0)
            if "unreachable" not in spool_dir.name:
                await ledger.emptied()
    sys.stdout.write(msgspec.json.encode({"ended": ended, "open": still_open}).decode() + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
