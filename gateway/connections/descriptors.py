"""How many file descriptors this process may open, and how many of them are for clients."""

import resource

MOST = 1_048_576  # common in containers; more would cost kernel memory without use
_MACOS_MOST = 10_240  # OPEN_MAX: the actual maximum if the hard limit is "unlimited"

# For everything that has no client: stores, spool, logs, health, metrics, the demo, and a reload's second fleet.
RESERVED = 128
# A call has its client's connection and, in a race of two, two upstream connections.
PER_CLIENT = 3
FEWEST_CLIENTS = 16


def raise_limit() -> int:
    """Raise the soft limit of open descriptors towards the hard limit; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft >= most:
        return soft
    for wanted in (most, min(most, _MACOS_MOST)):
        if soft != resource.RLIM_INFINITY and wanted <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            continue
        return wanted
    return most if soft == resource.RLIM_INFINITY else soft


def descriptor_budget(limit: int | None = None) -> int:
    """Return how many client connections are allowed with ``limit`` descriptors (default: this process's limit).

    The rest is for upstream connections and the stores.
    """
    if limit is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST if soft == resource.RLIM_INFINITY else soft
    return max(FEWEST_CLIENTS, (limit - RESERVED) // PER_CLIENT)
