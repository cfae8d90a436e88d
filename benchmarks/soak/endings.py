"""How calls may end: what a client saw, and what it may see after the fault that its call met."""

from collections.abc import Set as AbstractSet
from enum import StrEnum

from benchmarks.soak.jobs import BEFORE_ANSWER, Fault, Job


class Ending(StrEnum):
    """What became of a call, as its client saw it."""

    ANSWERED = "answered"  # whole, and its own
    TOLD = "told"  # an error as the API has it, as a body or as the last event
    TURNED_AWAY = "turned away"  # an error which says that a provider was not asked, being out since it failed others
    CUT = "cut"  # the connection ended before the answer did, which every client notices
    LEFT = "left"  # by the client
    WRONG = "wrong"  # incomplete, somebody else's, or neither answer nor error, and nothing shows it
    LATE = "late"  # there was no end


def allowed(job: Job) -> AbstractSet[Ending]:
    """Return how a call may end."""
    match job.fault:
        case None:
            return {Ending.ANSWERED, Ending.TURNED_AWAY}
        case Fault.LEAVES:
            return {Ending.LEFT, Ending.ANSWERED, Ending.TURNED_AWAY}
        case Fault.GARBLED:  # an event that says nothing may be left out or passed on
            return {Ending.ANSWERED, Ending.TOLD, Ending.TURNED_AWAY}
    told = {Ending.TOLD, Ending.TURNED_AWAY}
    if job.fault not in BEFORE_ANSWER and job.kind.is_relayed:
        told |= {Ending.CUT}  # its body is on its way to the client as it arrives
    if job.is_everywhere:
        return told
    under_way = job.fault not in BEFORE_ANSWER and (job.kind.streamed or job.kind.is_relayed)
    return {Ending.ANSWERED, Ending.TURNED_AWAY, *(told if under_way else ())}
