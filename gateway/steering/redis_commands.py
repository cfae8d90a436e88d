"""The commands sent to Redis and their keys: the script that adds a replica's parts, and reading hashes."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from gateway.steering.constants import REDIS_TIMEOUT_S
from gateway.steering.contributions import Part
from gateway.steering.redis_values import MOST_BYTES, MOST_FIELDS, READ

# Adds one replica's parts to the slots KEYS, each once. ARGV: the replica's own field, the expiry, and for each slot
# the number of the previous part, the number of this one, and its counts as one JSON object: single arguments would
# cost the client five times as much. A slot's number is in its own hash, so it is lost together with the slot: a
# repeated part finds its number there, and a part without its predecessor is not added. Returns each slot's number.
# HINCRBYFLOAT adds whole numbers exactly, and unlike HINCRBY never fails half way at a fraction; 17 digits are all that
# a double has. Values that others have written there, of another type or not a number, are overwritten: an error half
# way would leave a part that is sent, and counted, again each second.
APPLY = """
local found = {}
for slot = 1, #KEYS do
  local before, number, counts = ARGV[3 * slot], ARGV[3 * slot + 1], ARGV[3 * slot + 2]
  local last = redis.pcall('HGET', KEYS[slot], ARGV[1])
  if type(last) == 'table' then
    redis.call('DEL', KEYS[slot])
    last = '0'
  elseif not last or #last > 15 or not string.match(last, '^%d+$') then
    last = '0'
  end
  found[slot] = last
  if last == before then
    for field, amount in pairs(cjson.decode(counts)) do
      local text = string.format('%.17g', amount)
      local sum = redis.pcall('HINCRBYFLOAT', KEYS[slot], field, text)
      if type(sum) == 'table' then redis.call('HSET', KEYS[slot], field, text) end
    end
    redis.call('HSET', KEYS[slot], ARGV[1], number)
    redis.call('EXPIRE', KEYS[slot], ARGV[2])
    found[slot] = number
  end
end
return found
"""


def connect(url: str, timeout_s: float = REDIS_TIMEOUT_S) -> Redis:
    """Return a client that gives up on a silent Redis within ``timeout_s``."""
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),  # the next round is the retry
        encoding_errors="replace",  # invalid bytes would prevent reading the other replies
    )


def key_of(model: str, suffix: object) -> str:
    """Return the key of a model's ``suffix``: a slot's number, or a day's dollars."""
    tag = model.replace("{", "%7B").replace("}", "%7D")  # its own braces would move the hash tag
    return f"holeshot:{{{tag}}}:{suffix}"


def read(pipeline: Any, key: str) -> None:
    """Queue a read of a hash, with limits; for the reply see ``redis_values``."""
    pipeline.eval(READ, 1, key, str(MOST_FIELDS), str(MOST_BYTES))


def arguments(parts: Iterable[Part]) -> Iterable[str | bytes]:
    """Yield the arguments of ``APPLY`` for ``parts``, after those common to all."""
    for part in parts:
        yield from (str(part.before), str(part.number), msgspec.json.encode(part.counts))


def answer(replies: Iterator[Any]) -> Any:
    """Return the next reply; raises it if it is an error."""
    reply = next(replies)
    if isinstance(reply, Exception):
        raise reply
    return reply
