"""Names of users: each API refuses some that the other takes, and is told their hash instead."""

import hashlib
import re

from providers.dialects.messages.losses import Losses

_LONGEST_IN_CHAT = 64  # letters
_LONGEST_IN_MESSAGES = 256
_TELLS_WHO = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|\+?[\d\s().-]{7,}")  # an address, a telephone number


def name_in_chat(name: str, losses: Losses) -> str:
    """Return a Messages request's ``metadata.user_id`` as chat's ``user``. Claude Code's has over a hundred letters."""
    if len(name) <= _LONGEST_IN_CHAT:
        return name
    losses.add("metadata.user_id", f"chat takes {_LONGEST_IN_CHAT} letters at most, and gets its hash", hint=True)
    return _hash(name)


def name_in_messages(name: str, field: str, losses: Losses) -> str:
    """Return chat's name of a user, which is ``field``, as ``metadata.user_id``."""
    if len(name) <= _LONGEST_IN_MESSAGES and not _TELLS_WHO.fullmatch(name):
        return name
    losses.add(field, "Messages takes no long or personal names, and gets its hash", hint=True)
    return _hash(name)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
