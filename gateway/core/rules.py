"""The rules by which calls and attempts are counted, each stated once: for Python, and for the ledger's SQL.

The time saved by racing is no such rule: it is measured for each call, and stored with the call (``alone_ms``).
"""

from providers import About, ErrorKind
from providers.dialects import DIALECTS

# Outcomes of attempts: the provider's failures, and the ends by another attempt's win.
BROKEN = ("failed", "timeout", "stalled")
BEATEN = ("lost", "superseded")
CUT = (*BEATEN, "client_gone")  # the provider might have answered
# Kinds of failures that say nothing of a deployment's health.
NO_ERRORS = tuple(
    kind.value for kind in ErrorKind if kind.facts.about in {About.STEP, About.LIMIT, About.REQUEST, About.API}
)
# Kinds of refusals followed by another request to the same deployment at once: no separate try, and no sample.
STEPS = tuple(kind.value for kind in ErrorKind if kind.facts.about is About.STEP)

RACED = tuple(dialect.endpoint for dialect in DIALECTS.values())  # the ``endpoint`` of each API with raced answers

FIRST_ERROR = 400  # HTTP's
CLIENT_LEFT = 499  # the status of a call whose client disconnected
NOT_ITS_CLIENTS = (424, 429)  # the operator's fault; a limit's, and no answer all the same


def is_own_fault(status_code: int) -> bool:
    """Return whether a call's status means an invalid request: the fault of its client, which has not left."""
    return FIRST_ERROR <= status_code < CLIENT_LEFT and status_code not in NOT_ITS_CLIENTS


def has_failed(status_code: int, error_kind: str | None) -> bool:
    """Return whether a call failed: it ended with an error that was not its client's own fault.

    A broken stream counts, though its status is 200. So do 424, which is the operator's fault, and 429.
    """
    return error_kind is not None and not (is_own_fault(status_code) or status_code == CLIENT_LEFT)
