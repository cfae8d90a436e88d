"""How an API's requests continue an earlier answer, or ask for one again, for the APIs that have such requests."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from providers.models import Usage

MOST_HEARD_BYTES = 8 * 2**20  # of an answer's items
MOST_ABOUT_BYTES = 16 * 1024  # of an answer without its items


class TurnReader(Protocol):
    """Reads an answer for the parts of it that the next turn needs."""

    id: str | None
    is_over: bool  # whether the answer is complete, or was cut short by its own limit
    is_lost: bool  # whether the items were longer than ``MOST_HEARD_BYTES``, and so are not kept
    about: bytes  # the ended answer without its items and without the client's fields; empty: too long

    def take(self, block: bytes) -> None:
        """Read whole events."""

    def read(self, body: bytes) -> None:
        """Read an answer that came whole."""

    @property
    def said(self) -> Sequence[tuple[str | None, bytes]]:
        """The id of each item of the answer (None: without ids), and the item as input of the next turn."""


class Recalling(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """How one API names earlier answers. Where no provider stores answers, the gateway remembers recent ones.

    A conversation is a list of items: of Responses the items of ``input``, of interactions their steps.
    """

    noun: str  # what an answer of the API is called in errors
    path: str  # of the stored answers, at providers and at the gateway
    previous: str  # the field of a request that names the answer before
    items_of: Callable[[msgspec.Raw | None], bytes | None]  # a prompt's, without brackets; None: no items
    heard: Callable[[], TurnReader]
    answered_again: Callable[[bytes, Sequence[tuple[str | None, bytes]]], bytes]  # from ``about`` and ``said``
    id_of: Callable[[bytes], str | None]  # returns the id of the answer whose JSON or events begin so
    ended: Callable[[bytes], bytes | None]  # returns the whole answer in the data of a last event; None: another event
    state_of: Callable[[bytes], tuple[str | None, Usage | None]]  # the status and usage of a stored answer
    deleted: Callable[[str], dict[str, object]]  # returns the body for a deleted answer, from its id
    running: frozenset[str] = frozenset({"queued", "in_progress"})
    kept_as: str = ""  # the gateway's memory has these answers apart from other APIs'; empty: beside Responses'
    names_items: bool = False  # items have ids, by which later requests may name them
