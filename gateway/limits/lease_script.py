"""What is said to Redis about leases: one script for a quota, one for the processes that share it.

A quota is a hash with one field for each process, ``used lease until seen`` (amounts, and Redis' own time in seconds),
and ``base``: what was used by processes that do not report any more. All that a process says is absolute, so a command
that is repeated or whose reply is lost does no harm.
"""

from typing import Any

import msgspec

from gateway.limits.quota import Quota


class Times(msgspec.Struct, frozen=True):
    """How long what a process says is believed, in seconds."""

    lease_s: float = 5.0  # then a dead process's lease has expired
    process_s: float = 15.0  # a process that says nothing for so long is not counted
    silent_s: float = 60.0  # what such a process used is restored by the others if Redis loses it
    restoring_s: float = 2.0  # after a loss of data, or without Redis: by then every process has reported again
    round_s: float = 0.5  # between two reports on all quotas in use
    repeat_s: float = 20.0  # between two reports on those not in use; less than ``silent_s``
    timeout_s: float = 1.0  # of a round; only calls that need a place in ``max_parallel`` wait for so long


EXPIRY_S = {"rpm": 300, "tpm": 300, "max_parallel": 300, "usd_per_day": 3 * 86_400, "usd_per_month": 35 * 86_400}

USUAL = Times()

PROCESSES_KEY = "holeshot:limits:processes"

# KEYS[1]: a hash of all processes; ARGV: this one, ``process_s`` and ``restoring_s``, whether it has been here before
# (then, if its field is gone, Redis has lost its data), and whether it went on without Redis. Returns how many
# processes there are, and whether a moment ago data were lost or one returned: then what others have used and leased
# may not be known here yet. Returns count only sometimes, so that a process which comes and goes stops nobody.
GREET = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local seen = redis.pcall('HGETALL', KEYS[1])
if seen.err then redis.call('DEL', KEYS[1]); seen = {} end
local known, incomplete_at, mine = 1, 0, false
for at = 1, #seen, 2 do
  local value = tonumber(seen[at + 1]) or 0
  if seen[at] == 'incomplete_at' then
    incomplete_at = value
  elseif seen[at] == ARGV[1] then
    mine = true
  elseif value < now - tonumber(ARGV[2]) then
    redis.call('HDEL', KEYS[1], seen[at])
  else
    known = known + 1
  end
end
local returns = ARGV[5] == '1' and now - incomplete_at > 10 * tonumber(ARGV[3])
if (ARGV[4] == '1' and not mine) or returns then
  incomplete_at = now
  redis.call('HSET', KEYS[1], 'incomplete_at', string.format('%.3f', now))
end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.3f', now))
redis.call('EXPIRE', KEYS[1], 86400)
return {known, (now - incomplete_at < tonumber(ARGV[3])) and 1 or 0}
"""

# KEYS[1]: a quota. ARGV: this process, what it has used, what it needs, what it would like to have at hand besides, the
# limit, the seconds of a lease, of ``silent_s`` and of the key's expiry, the base that it knows, whether it has
# reported before (that base counts if its own field, or the whole hash, is gone), whether the quota is of calls, and
# what it may use before it has the reply. Grants all of the need that is left, and of the rest at most a fair part; of
# calls a whole number of them. What a smaller lease gives back is for others when its holder has asked again: then it
# knows. Returns the lease, what others have used and leased, and the base with all silent ones.
LEASE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local me, used, need, more = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local limit, lease_s, silent_s = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local fields = redis.pcall('HGETALL', KEYS[1])
if fields.err then redis.call('DEL', KEYS[1]); fields = {} end
local base, silent, others, leased, alive, mine = 0, 0, 0, 0, 1, false
for at = 1, #fields, 2 do
  if fields[at] == 'base' then
    base = tonumber(fields[at + 1]) or 0
  elseif fields[at] == me then
    mine = true
  else
    local u, l, e, s = string.match(fields[at + 1], '^(%S+) (%S+) (%S+) (%S+)$')
    u, l, e, s = tonumber(u), tonumber(l), tonumber(e), tonumber(s)
    if u and l and e and s then
      others = others + u
      if e > now then
        leased = leased + l
        alive = alive + 1
      end
      if s < now - silent_s then silent = silent + u end
    end
  end
end
if not mine and tonumber(ARGV[9]) > base and (ARGV[10] == '1' or #fields == 0) then
  base = tonumber(ARGV[9])
  redis.call('HSET', KEYS[1], 'base', string.format('%.17g', base))
end
local left = math.max(0, limit - base - others - leased - used)
local lease = math.min(need, left)
more = math.min(more, math.max(0, left - lease) / (alive + 1))
if ARGV[11] == '1' then more = math.floor(more) end
lease = lease + more
local kept = math.max(lease, tonumber(ARGV[12]))
local field = string.format('%.17g %.17g %.3f %.3f', used, kept, now + lease_s, now)
redis.call('HSET', KEYS[1], me, field)
redis.call('EXPIRE', KEYS[1], ARGV[8])
local function text(number) return string.format('%.17g', number) end
return {text(lease), text(base + others), text(leased), text(base + silent)}
"""


class Grant(msgspec.Struct, frozen=True):
    """The reply to ``LEASE``: the lease of this process, and the others' use, leases and base."""

    lease: float
    used: float
    leased: float
    base: float

    @classmethod
    def of(cls, reply: Any) -> "Grant":
        """Read a reply.

        Raises:
            ValueError, TypeError: it is not one.

        """
        lease, used, leased, base = (float(each) for each in reply)
        return cls(lease, used, leased, base)


def key_of(quota: Quota) -> str:
    """Return the key of a quota; its own braces would move the hash tag of a cluster."""
    return "holeshot:limit:{" + quota.key.replace("{", "%7B").replace("}", "%7D") + "}"
