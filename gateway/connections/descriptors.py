"""How many files and sockets this process may have open, and how many of them are for clients."""

import resource

MOST = 1_048_576  # as containers commonly allow; the kernel's tables for more cost memory that no gateway needs
_MACOS_MOST = 10_240  # OPEN_MAX: what it grants where its hard limit says "unlimited"

# Stores, spool, logs, health, metrics, the demo and a reload beside the old fleet: what has no client behind it.
RESERVED = 128
# A call has its client's connection and, in a race of two, two upstream.
PER_CLIENT = 3
FEWEST_CLIENTS = 16


def raise_limit() -> int:
    """Raise the soft limit of open descriptors as far as the hard one allows; return what it is now."""
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
    """Return how many connections clients may have, of ``limit`` descriptors in all (by default this process's own).

    What is left is for their calls' upstreams, and for the stores.
    """
    if limit is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = MOST if soft == resource.RLIM_INFINITY else soft
    return max(FEWEST_CLIENTS, (limit - RESERVED) // PER_CLIENT)
