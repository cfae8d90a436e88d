"""The rules by which calls and attempts are counted, each stated once: Python asks them, the ledger makes SQL of them.

What was saved is no such rule: it is measured for each call, and stored with it (``alone_ms``).
"""

from providers import About, ErrorKind
from providers.dialects import DIALECTS

# Outcomes of attempts: the provider's failure, and those of which another attempt had won.
BROKEN = ("failed", "timeout", "stalled")
BEATEN = ("lost", "superseded")
CUT = (*BEATEN, "client_gone")  # the provider might have answered
# Kinds of failures that say nothing of a deployment's health.
NO_ERRORS = tuple(
    kind.value for kind in ErrorKind if kind.facts.about in {About.STEP, About.LIMIT, About.REQUEST, About.API}
)
# Kinds of refusals after which the same deployment was asked again at once: they are no try of it, and no sample.
STEPS = tuple(kind.value for kind in ErrorKind if kind.facts.about is About.STEP)

RACED = tuple(dialect.endpoint for dialect in DIALECTS.values())  # the APIs whose answers are raced, by ``endpoint``

FIRST_ERROR = 400  # HTTP's
CLIENT_LEFT = 499  # the status of a call whose client disconnected
NOT_ITS_CLIENTS = (424, 429)  # the operator's fault; a limit's, and no answer all the same


def is_own_fault(status_code: int) -> bool:
    """Whether a call's status says that its request was invalid: the fault of its client, which has not left."""
    return FIRST_ERROR <= status_code < CLIENT_LEFT and status_code not in NOT_ITS_CLIENTS


def has_failed(status_code: int, error_kind: str | None) -> bool:
    """Whether a call failed: it ended with an error that was not its client's own fault.

    A stream that broke counts, though its status is 200. So do 424, which is the operator's fault, and 429.
    """
    return error_kind is not None and not (is_own_fault(status_code) or status_code == CLIENT_LEFT)
