"""The states of an attempt and their transitions.

          ┌─────────► HELD ────────┐
          │                        ▼
    ASKED ┼───────────────────► ANSWERING ──► ANSWERED ──► DRAINING
          │                        ▲             │            │
          ├─────────► EMPTY ───────┘             ▼            ▼
          └─────────► WATCHED ───────────────► OVER ◄─────────┘

An attempt may go to OVER from every state: it failed, was cut, or its client left. HELD may also become WATCHED.
"""

from collections.abc import Mapping
from enum import Enum


class State(Enum):
    """The state of an attempt."""

    ASKED = "asked"  # launched; no delta yet that can win the race
    HELD = "held"  # has its first token, but waits for another attempt that is predicted to be better
    EMPTY = "empty"  # its answer is complete but empty; it is used only if no other attempt is left
    ANSWERING = "answering"  # has won: its events are sent to the client
    ANSWERED = "answered"  # the answer is complete and recorded
    DRAINING = "draining"  # its body is read to the end, so that the connection can be reused
    WATCHED = "watched"  # has lost, and is audited: read until its first token, or a few more
    OVER = "over"  # its record is fixed and its exchange dropped

    __hash__ = object.__hash__  # Enum's own is a Python call for each set lookup


ACTIVE = frozenset({State.ASKED, State.HELD, State.EMPTY, State.ANSWERING})  # those that may answer, or do
UNAWAITED = frozenset({State.WATCHED, State.DRAINING})  # those whose end need not be awaited

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
