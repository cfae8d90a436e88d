"""The calls of a soak, drawn from the seed and their numbers: what each asks for, its fault, and how it may end."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from random import Random

import msgspec

LEAVE_WITHIN_S = 0.15  # about as long as a call takes: before its headers, in mid-answer, or just too late
EVERYWHERE_SHARE = 0.2  # of the faults are met at every provider, so that nobody can answer


class Fault(StrEnum):
    """What a call meets at the first provider that is asked, or at each of them."""

    REFUSED = "refused"  # nobody listens
    RESET = "reset"  # the connection is reset in place of headers
    HANG = "hang"  # nothing is ever sent
    LIMITED = "limited"  # 429
    FAILS = "fails"  # 500
    GARBAGE = "garbage"  # bytes that are no HTTP
    BROKEN = "broken"  # the connection is reset in mid-answer
    STALL = "stall"  # the answer stops in the middle, and nothing more comes
    GARBLED = "garbled"  # an event of the answer is no JSON
    ENDS_EARLY = "ends_early"  # the answer ends in order, in the middle
    LEAVES = "leaves"  # the client hangs up at a random instant


BEFORE_ANSWER = frozenset({Fault.REFUSED, Fault.RESET, Fault.HANG, Fault.LIMITED, Fault.FAILS, Fault.GARBAGE})
AT_ONE = frozenset({Fault.LIMITED})  # never everywhere: all would cool, and calls without a fault find nobody
NOT_OF_EMBEDDINGS = frozenset({Fault.REFUSED, Fault.GARBLED})  # they have no preferences, and no events


class Kind(msgspec.Struct, frozen=True):
    """A way of asking. ``model`` is one of the gateway's, named for how it asks its providers."""

    model: str
    streamed: bool = False

    @property
    def is_relayed(self) -> bool:
        """Whether it is for vectors, which are not raced."""
        return self.model == "relayed"


KINDS: Sequence[Kind] = (
    *(Kind(model, streamed) for model in ("raced", "hedged", "single") for streamed in (True, False)),
    Kind("relayed"),
)


class Job(msgspec.Struct, frozen=True):
    """One call. ``leave_s``: so long after its start its client hangs up."""

    number: int
    kind: Kind
    fault: Fault | None = None
    is_everywhere: bool = False
    leave_s: float | None = None

    @property
    def prompt(self) -> str:
        """What providers are told by it; see ``provider``."""
        played = "none" if self.fault in {None, Fault.REFUSED, Fault.LEAVES} else self.fault
        return f"soak {self.number} {played} {'everywhere' if self.is_everywhere else 'once'}"

    @property
    def request_id(self) -> str:
        """Its name in the ledger."""
        return f"soak-{self.number}"


def drawn(seed: int, number: int, share: float) -> Job:
    """Return a call; with probability ``share`` it meets a fault."""
    random = Random(f"{seed} {number}")
    kind = random.choice(KINDS)
    if random.random() >= share:
        return Job(number, kind)
    fault = random.choice([each for each in Fault if not (kind.is_relayed and each in NOT_OF_EMBEDDINGS)])
    if fault is Fault.LEAVES:
        return Job(number, kind, fault, leave_s=random.uniform(0, LEAVE_WITHIN_S))
    return Job(number, kind, fault, is_everywhere=fault not in AT_ONE and random.random() < EVERYWHERE_SHARE)


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
