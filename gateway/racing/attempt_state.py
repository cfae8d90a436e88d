"""The states of an attempt, and which may follow which.

          ┌─────────► HELD ────────┐
          │                        ▼
    ASKED ┼───────────────────► ANSWERING ──► ANSWERED ──► DRAINING
          │                        ▲             │            │
          ├─────────► EMPTY ───────┘             ▼            ▼
          └─────────► WATCHED ───────────────► OVER ◄─────────┘

From each of them an attempt may be over at once: it failed, was cut, or its client left. HELD may also be WATCHED.
"""

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """Where an attempt is."""

    ASKED = "asked"  # launched; nothing has come that wins a race
    HELD = "held"  # has its first token, kept back for one that should be the better answer
    EMPTY = "empty"  # its answer is whole, and nothing in it wins; it answers when nobody else is left
    ANSWERING = "answering"  # has won: what comes goes to the client
    ANSWERED = "answered"  # the answer is whole, and recorded
    DRAINING = "draining"  # its body is read to the end, so that the connection can be used again
    WATCHED = "watched"  # has lost, and is audited: read until its first token, or some more
    OVER = "over"  # its record is fixed, and its provider dropped

    __hash__ = object.__hash__  # Enum's own is a call into Python for each look into a set


ACTIVE = frozenset({State.ASKED, State.HELD, State.EMPTY, State.ANSWERING})  # may answer, or does
UNAWAITED = frozenset({State.WATCHED, State.DRAINING})  # nobody need wait for their end

FOLLOWING: Mapping[State, frozenset[State]] = {
    State.ASKED: frozenset({State.HELD, State.EMPTY, State.ANSWERING, State.WATCHED, State.OVER}),
    State.HELD: frozenset({State.ANSWERING, State.WATCHED, State.OVER}),
    State.EMPTY: frozenset({State.ANSWERING, State.OVER}),
    State.ANSWERING: frozenset({State.ANSWERED, State.OVER}),
    State.ANSWERED: frozenset({State.DRAINING, State.OVER}),
    State.DRAINING: frozenset({State.OVER}),
    State.WATCHED: frozenset({State.OVER}),
    State.OVER: frozenset(),
}
