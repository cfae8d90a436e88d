"""The Redis scripts for leases: one for a quota, one for the processes that share the quota.

A quota is a hash with one field for each process, ``used lease until seen`` (amounts, and Redis' own time in seconds),
for slots also the number in flight there. The field ``base`` is the usage of processes that no longer report. ``sums``
are over all fields, so that the cost of a report does not depend on the number of processes. Reports are absolute, and
a process's former report is subtracted from the sums, so a repeated command or a lost reply does no harm. The sums are
computed again from all fields in each fifth of a lease's time: until then an expired lease still counts. In quotas of
calls, silent processes without usage are removed then: a limit on concurrent calls has no window at whose end they
would go.
"""

from typing import Any

import msgspec

from gateway.limits.quota import LeasedSlots, Quota

PROCESSES_KEY = "holeshot:limits:processes"

# KEYS[1]: a hash of all processes, and ``known``: the number of processes, counted again in each fifteenth of
# ``process_s``. ARGV: this process, ``process_s``, ``restoring_s``, whether this process has reported before (then, if
# its field is missing, Redis has lost data), and whether it went on without Redis. Returns the number of processes, and
# whether data were lost or a process returned a moment ago: then the others' usage and leases may be incomplete here.
# Not every return counts, so that a process with an unstable connection does not block the others.
GREET = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local me, process_s, restoring_s = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local found = redis.pcall('HMGET', KEYS[1], me, 'incomplete_at', 'known')
if found.err then redis.call('DEL', KEYS[1]); found = {} end
local mine, incomplete_at = found[1], tonumber(found[2] or '') or 0
local known, at = string.match(found[3] or '', '^(%S+) (%S+)$')
known, at = tonumber(known), tonumber(at)
local again = not (known and at) or at > now or now - at > process_s / 15
if again then
  known, at = mine and 1 or 0, now
  local seen = redis.call('HGETALL', KEYS[1])
  for place = 1, #seen, 2 do
    local id = seen[place]
    if id ~= me and id ~= 'incomplete_at' and id ~= 'known' then
      if (tonumber(seen[place + 1]) or 0) < now - process_s then
        redis.call('HDEL', KEYS[1], id)
      else
        known = known + 1
      end
    end
  end
end
if not mine then known = known + 1 end
local returns = ARGV[5] == '1' and now - incomplete_at > 10 * restoring_s
if (ARGV[4] == '1' and not mine) or returns then
  incomplete_at = now
  redis.call('HSET', KEYS[1], 'incomplete_at', string.format('%.3f', now))
end
redis.call('HSET', KEYS[1], me, string.format('%.3f', now), 'known', string.format('%d %.6f', known, at))
if again then redis.call('EXPIRE', KEYS[1], 86400) end
return {known, (now - incomplete_at < restoring_s) and 1 or 0}
"""

# KEYS[1]: any key of the shard. Returns the shard's time: Unix seconds, and microseconds. All processes count minutes
# by this clock.
CLOCK = "return redis.call('TIME')"

# KEYS[1]: a quota. ARGV: this process, its usage, its need, the amount wanted in advance, the limit, the seconds of a
# lease, of ``silent_s`` and of the key's expiry, the base that this process knows, and whether it has reported before
# (1: this base counts if the process's field, or the whole hash, is missing; 0: if the hash is missing; 2: by the
# ledger, all others have used at least this base). Then: whether the quota counts calls, the amount that the process
# may use before it reads the reply, for slots ARGV[13] as below, and whether the process ends: then its usage is added
# to the base, and its field is removed. Grants as much of the need as is left, and of the rest at most a fair part; of
# calls a whole number. After a smaller lease, the difference is available to others from the holder's next report on:
# only then does the holder know. Returns the lease, the others' usage and leases, and the base including all silent
# processes.
#
# ARGV[15]: of dollars, how much of the need may lie beyond what is left. This is granted while anything is left (more
# than an error of rounding), so to one process at a time: its lease then takes all. Other processes keep what their
# calls hold (ARGV[13], within the last lease).
#
# Slots at a deployment have KEYS[2], a sorted set of the processes that have less than a fair part and lack slots, by
# the time since when, and ARGV[13], the attempts of this process in flight, whose slots stay leased. Of the free slots,
# each process in the set that has waited longer gets one first, unless its lease has expired. While the set is not
# empty, no process is granted more than a fair part. For a second after any process lacked slots (``wanted``), none are
# granted in advance; else at least one. Also returns the others' attempts in flight, the fair part, and whether others
# lack slots.
LEASE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local me, used, need, more = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, lease_s, silent_s = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local function read(field)
  local u, l, e, s, r = string.match(field or '', '^(%S+) (%S+) (%S+) (%S+) ?(%S*)$')
  u, l, e, s = tonumber(u), tonumber(l), tonumber(e), tonumber(s)
  if u and l and e and s then return u, l, e, s, tonumber(r) or 0 end
end
local found = redis.pcall('HMGET', KEYS[1], me, 'base', 'sums', 'wanted')
if found.err then redis.call('DEL', KEYS[1]); found = {} end
local all, leased, alive, silent, at, running =
  string.match(found[3] or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) ?(%S*)$')
all, leased, alive = tonumber(all), tonumber(leased), tonumber(alive)
silent, at, running = tonumber(silent), tonumber(at), tonumber(running or '') or 0
local empty, again = false, false
if not (all and leased and alive and silent and at) or at > now or now - at > lease_s / 5 then
  all, leased, alive, silent, at, running = 0, 0, 0, 0, now, 0
  local fields = redis.call('HGETALL', KEYS[1])
  empty, again = #fields == 0, true
  for place = 1, #fields, 2 do
    if fields[place] ~= 'base' and fields[place] ~= 'sums' then
      local u, l, e, s, r = read(fields[place + 1])
      if u == 0 and ARGV[11] == '1' and e <= at and s < at - silent_s then
        redis.call('HDEL', KEYS[1], fields[place])
      elseif u then
        all = all + u
        if e > at then leased, alive, running = leased + l, alive + 1, running + r end
        if s < at - silent_s then silent = silent + u end
      end
    end
  end
end
local base = tonumber(found[2] or '') or 0
local u, l, e, s, r = read(found[1])
if u then
  all = all - u
  if e > at then leased, alive, running = math.max(0, leased - l), alive - 1, math.max(0, running - r) end
  if s < at - silent_s then silent = silent - u end
elseif not found[1] and tonumber(ARGV[9]) > base and (ARGV[10] == '1' or empty) then
  base = tonumber(ARGV[9])
  redis.call('HSET', KEYS[1], 'base', string.format('%.17g', base))
end
if ARGV[10] == '2' and tonumber(ARGV[9]) > base + all then
  base = tonumber(ARGV[9]) - all
  redis.call('HSET', KEYS[1], 'base', string.format('%.17g', base))
end
local unleased = limit - base - all - leased - used
local left = math.max(0, unleased)
local lease = math.min(need, left)
if ARGV[11] ~= '1' and lease < need then
  local kept = (u and e > now) and math.min(tonumber(ARGV[13]), u + l - used) or 0
  local beyond = unleased >= 3e-9 and unleased + tonumber(ARGV[15]) or 0
  lease = math.min(need, math.max(lease, kept, beyond))
end
local turns, mine, fair, short = KEYS[2], tonumber(ARGV[13]), 0, false
if turns then
  local first = redis.pcall('ZRANGE', turns, 0, 0)
  if first.err then redis.call('DEL', turns); first = {} end
  while first[1] and first[1] ~= me do
    local _, _, expires = read(redis.call('HGET', KEYS[1], first[1]))
    if (expires or 0) > now then break end
    redis.call('ZREM', turns, first[1])
    first = redis.call('ZRANGE', turns, 0, 0)
  end
  local rank = redis.call('ZRANK', turns, me)
  local others = redis.call('ZCARD', turns) - (rank and 1 or 0)
  fair = math.floor(limit / (alive + 1))
  local part, preference = math.max(1, fair), need
  if others > 0 then preference = math.min(need, math.max(mine, part)) end
  lease = math.min(preference, math.max(math.min(mine, left), left - (rank or others)))
  if lease < math.min(need, part) then
    redis.call('ZADD', turns, 'NX', now, me)
    redis.call('EXPIRE', turns, ARGV[8])
  elseif rank then
    redis.call('ZREM', turns, me)
  end
  local who, since = string.match(found[4] or '', '^(%S+) (%S+)$')
  since = tonumber(since or '') or 0
  short = others > 0 or (who ~= me and since <= now and now - since < 1)
  if lease < need then redis.call('HSET', KEYS[1], 'wanted', string.format('%s %.6f', me, now)) end
end
local part = math.max(0, left - lease) / (alive + 2)
if turns then part = short and 0 or math.max(part, math.min(1, left - lease)) end
more = math.min(more, part)
if ARGV[11] == '1' then more = math.floor(more) end
lease = lease + more
local kept = math.max(lease, tonumber(ARGV[12]))
local function text(number) return string.format('%.17g', number) end
local ends = ARGV[14] == '1' and u
local n = ends and 0 or 1
local field = string.format('%.17g %.17g %.3f %.3f', used, kept, now + lease_s, now)
local sums = string.format('%.17g %.17g %d %.17g %.6f', all + n * used, leased + n * kept, alive + n, silent, at)
if turns then
  field = field .. string.format(' %.17g', mine)
  sums = sums .. string.format(' %.17g', running + n * mine)
end
if ends then
  redis.call('HDEL', KEYS[1], me)
  redis.call('HSET', KEYS[1], 'base', text(base + used), 'sums', sums)
else
  redis.call('HSET', KEYS[1], me, field, 'sums', sums)
end
if again then redis.call('EXPIRE', KEYS[1], ARGV[8]) end
return {text(lease), text(base + all), text(leased), text(base + silent), text(running), text(fair), short and 1 or 0}
"""


class Grant(msgspec.Struct, frozen=True):
    """The reply to ``LEASE``: this process's lease, and the usage, leases and base of the others.

    For slots also the others' attempts in flight, the fair part of each process, and whether others lack slots.
    """

    lease: float
    used: float
    leased: float
    base: float
    running: float
    fair: float
    is_wanted: bool

    @classmethod
    def of(cls, reply: Any) -> "Grant":
        """Read a reply.

        Raises:
            ValueError, TypeError: the reply is not from ``LEASE``.

        """
        lease, used, leased, base, running, fair, wanted = (float(each) for each in reply)
        return cls(lease, used, leased, base, running, fair, wanted > 0)


def key_of(quota: Quota) -> str:
    """Return the key of a quota in Redis; braces are escaped, as they would change a cluster's hash tag."""
    return "holeshot:limit:{" + quota.key.replace("{", "%7B").replace("}", "%7D") + "}"


def keys_of(quota: Quota) -> tuple[str, ...]:
    """Return the keys for ``LEASE``, all in one slot of a cluster."""
    key = key_of(quota)
    return (key, key + ":turns") if isinstance(quota, LeasedSlots) else (key,)


def processes_key(shard: str) -> str:
    """Return the key of a shard's list of processes."""
    return f"{PROCESSES_KEY}:{{{shard}}}" if shard else PROCESSES_KEY
