"""What is said to Redis, and in which keys: the script that adds a replica's parts, and the reading of hashes."""

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
# the number of the part that must have come before, the number of this one, and its counts as one JSON object: as an
# argument each they cost the client five times as much.
# A slot's number is kept in its own hash, so it shares the slot's fate: a repeated part finds itself there, and a part
# whose predecessor is missing is not added. Returns the number each slot had. HINCRBYFLOAT adds whole numbers exactly,
# and unlike HINCRBY never stops half way because a field holds a fraction; 17 digits are all that a double has.
# What somebody else has put in our place, a key of another type or a field that is no number, is written over: an error
# half way would leave a part that is sent again, and counted again, each second.
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
    """Return a client that gives up on a silent Redis within a second."""
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),  # the next round is the retry
        encoding_errors="replace",  # bytes that are no text would leave the rest of the replies unread
    )


def key_of(model: str, suffix: object) -> str:
    """Return the key of a model's ``suffix``: the number of a slot, or a day's dollars."""
    tag = model.replace("{", "%7B").replace("}", "%7D")  # braces of its own would move the hash tag
    return f"holeshot:{{{tag}}}:{suffix}"


def read(pipeline: Any, key: str) -> None:
    """Ask for the fields of a hash, within bounds; ``redis_values`` says what the reply is."""
    pipeline.eval(READ, 1, key, str(MOST_FIELDS), str(MOST_BYTES))


def arguments(parts: Iterable[Part]) -> Iterable[str | bytes]:
    """Yield the arguments of ``APPLY`` for ``parts``, after those that are the same for all."""
    for part in parts:
        yield from (str(part.before), str(part.number), msgspec.json.encode(part.counts))


def answer(replies: Iterator[Any]) -> Any:
    """Return the next reply; an error that Redis gave in its place is raised."""
    reply = next(replies)
    if isinstance(reply, Exception):
        raise reply
    return reply
