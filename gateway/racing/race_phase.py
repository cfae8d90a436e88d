"""The phases of a race, and which may follow which.

RUNNING ──► HOLDING ──► ANSWERING ──► OVER
  ▲ │ ▲        │          ▲   │
  │ │ └────────┘          │   │    back to RUNNING: the attempt that was held has failed,
  │ └─────────────────────┘   │    or the winner, whose answer is gathered and not committed
  └───────────────────────────┘    OVER may follow any
"""

from enum import Enum


class Phase(Enum):
    """Where a race is."""

    RUNNING = "running"  # nobody has an answer; launches may come
    HOLDING = "holding"  # one has its first token, and is held for a better one; no launches
    ANSWERING = "answering"  # one has won, and nobody else runs
    OVER = "over"
