"""What a scripted provider does with one request: in virtual time, and over sockets."""

import msgspec

NEVER_S = 1e6


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider does with one request. Seconds count from the request."""

    opens_s: float = 0.01  # when its headers come
    refusal: str | None = None  # an error kind, instead of headers
    status: int | None = None  # likewise, by the status of its HTTP answer
    retry_after_s: float | None = None
    says: str | None = None  # the message of its refusal
    recovers_s: float | None = None  # after the first that it refuses so: then it does no more
    first_s: float = 0.05  # when its first event comes, after the headers
    gap_s: float = 0.02  # between two events
    tokens: int = 4
    thoughts: int = 0  # reasoning deltas before them
    usage: bool = True
    done: bool = True  # [DONE] follows
    stalls_at: int | None = None  # before this event; it never comes
    breaks_at: int | None = None  # before this event the connection is reset
    lie: str | None = None
    per_read: int = 1  # events that arrive together
    torn: bool = False  # events arrive in pieces
    sends: int = 1  # a kept connection was lost, and it was sent again
    lingers_s: float = 0.0  # between [DONE] and the end of its body
    json: str | None = None  # its text is "good" JSON, or "bad"
    prose: bool = False  # its tokens are words, which arrive in pieces of any size
    alike: bool = False  # of prose: the same words that another has said to the same call, in sentences
    blanks: int = 0  # empty lines before them, one in each event
    slow_at: int | None = None  # from this event on ``slow_gap_s`` is between two
    fast_at: int | None = None  # until this one
    slow_gap_s: float = 1.0
    habit: str = "repeats"  # how it goes on with a text, one of HABITS in tests/schedules/scenario.py; or "refuses" to
