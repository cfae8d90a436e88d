"""The phases of a race and their transitions.

RUNNING ──► HOLDING ──► ANSWERING ──► OVER
  ▲ │ ▲        │          ▲   │
  │ │ └────────┘          │   │    back to RUNNING: the held attempt has failed,
  │ └─────────────────────┘   │    or the winner, whose answer is gathered and not committed
  └───────────────────────────┘    OVER may follow any
"""

from enum import Enum


class Phase(Enum):
    """The phase of a race."""

    RUNNING = "running"  # no attempt has an answer; more may be launched
    HOLDING = "holding"  # one has its first token and waits for a better one; no launches
    ANSWERING = "answering"  # one has won, and no other runs
    OVER = "over"

    __hash__ = object.__hash__  # Enum's own is a call into Python
