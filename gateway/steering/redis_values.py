"""Validates what is read from Redis: others may have written there, and it may be damaged.

Values that cannot be counts of ours are ignored, counted, and logged once: they influence no figure and cause no error.
"""

from collections.abc import Mapping
from itertools import islice
from sys import intern
from typing import Any

import msgspec
import structlog
from redis.exceptions import ResponseError

from gateway.steering.strikes import Report
from gateway.steering.tally import Counts

_log = structlog.get_logger(__name__)

MOST_FIELDS = 20_000  # of one hash: a slot with thirty busy deployments has ten thousand
MOST_BYTES = 4 * 2**20  # of one hash, names and values
MOST_COUNT = 1e13  # in one slot, half a minute; larger ones would make all others in a sum meaningless
MOST_USD = 1e9  # of one replica per day
LONGEST_FIELD = 512  # characters
MARK = "@"  # the prefix of a replica's own field; no other field has it

# Returns a hash, or its number of fields or bytes if that is too large.
READ = """
local fields = redis.call('HLEN', KEYS[1])
if fields > tonumber(ARGV[1]) then return fields end
local all = redis.call('HGETALL', KEYS[1])
local bytes = 0
for at = 1, #all do bytes = bytes + #all[at] end
if bytes > tonumber(ARGV[2]) then return bytes end
return all
"""


class Values:
    """Reads replies. ``ignored`` counts invalid values."""

    def __init__(self) -> None:
        self.ignored = 0
        self._said = False

    def hash(self, reply: Any, model: str) -> Mapping[str, str]:
        """Return the fields of a hash from ``READ``; none if it is too large or not a hash.

        Raises:
            RedisError: any other error reply.

        """
        if isinstance(reply, list):
            return dict(zip(islice(reply, 0, None, 2), islice(reply, 1, None, 2), strict=True))
        if isinstance(reply, Exception) and not is_of_another_type(reply):
            raise reply
        self._ignore(model, f"a hash of {reply} fields or bytes" if isinstance(reply, int) else "no hash")
        return {}

    def counts(self, fields: Mapping[str, str], model: str) -> Counts:
        """Return the counts among ``fields``, without the marks of replicas' parts."""
        counts: Counts = {}
        for field, text in fields.items():
            if field.startswith(MARK):
                continue
            amount = _number(text)
            if 0.0 <= amount <= MOST_COUNT and len(field) <= LONGEST_FIELD:
                counts[intern(field)] = amount
            else:
                self._ignore(model, f"{field[:100]!r} = {text[:100]!r}")
        return counts

    def usd(self, fields: Mapping[str, str], model: str, *, mine: str) -> float:
        """Return what the other replicas have spent, in US dollars."""
        total = 0.0
        for field, text in fields.items():
            amount = _number(text)
            if field == mine:
                continue
            if 0.0 <= amount <= MOST_USD:
                total += amount
            else:
                self._ignore(model, f"{field[:100]!r} = {text[:100]!r} dollars")
        return total

    def reports(self, fields: Mapping[str, str], *, mine: str) -> dict[str, Report]:
        """Return the other replicas' reports of strikes, by field."""
        reports = {}
        for field, text in fields.items():
            if field == mine:
                continue
            try:
                reports[field] = msgspec.json.decode(text, type=Report)
            except msgspec.MsgspecError:
                self._ignore("strikes", f"{field[:100]!r} = {text[:100]!r}")
        return reports

    def _ignore(self, model: str, what: str) -> None:
        self.ignored += 1
        if not self._said:
            self._said = True
            hint = "another program writes to holeshot:* there; invalid values are ignored and counted"
            _log.warning("steering.redis_garbage", model=model, ignored=what, hint=hint)


def is_of_another_type(reply: Exception) -> bool:
    """Whether Redis rejected a command because of the key's type."""
    return isinstance(reply, ResponseError) and str(reply).startswith("WRONGTYPE")


def _number(text: str) -> float:
    """Parse a number; a negative one if it is invalid."""
    try:
        return float(text)
    except ValueError:
        return -1.0
