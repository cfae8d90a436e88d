"""The settings of overload: how many calls a process takes on at once, and what becomes of the others."""

from typing import Annotated

from pydantic import Field

from gateway.settings.section import Section


class OverloadSettings(Section):
    """What a process takes on; each worker counts for itself. A call without room waits a moment, or gets a 503."""

    max_in_flight: Annotated[int, Field(ge=1)] | None = None  # calls; default: by memory and descriptors
    # While the event loop is later than this, fewer calls are let in. A first token passes the loop about five times:
    # with 15 ms it is about a thirteenth of a second late. 0: off.
    loop_delay_ms: Annotated[float, Field(ge=0)] = 15.0
    # Calls that may wait for room, by their client's priority, when many come at once. While more come than can be
    # served for good, only a few may wait, and hardly: see gateway/overload/patience.py.
    queue: Annotated[int, Field(ge=0)] = 2000
    queue_timeout_s: Annotated[float, Field(ge=0, le=60)] = 2.0  # how long they may wait; 0: not at all
