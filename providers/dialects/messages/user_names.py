"""Names of users. Each API refuses some names that the other accepts, and gets their hash instead."""

import hashlib
import re

from providers.dialects.messages.losses import Losses

_LONGEST_IN_CHAT = 64  # characters
_LONGEST_IN_MESSAGES = 256
_TELLS_WHO = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+|\+?[\d\s().-]{7,}")  # an e-mail address or a telephone number


def name_in_chat(name: str, losses: Losses) -> str:
    """Return Messages' ``metadata.user_id`` as chat's ``user``. Claude Code's has more than a hundred characters."""
    if len(name) <= _LONGEST_IN_CHAT:
        return name
    losses.add("metadata.user_id", f"chat takes {_LONGEST_IN_CHAT} characters at most, so it gets a hash", hint=True)
    return _hash(name)


def name_in_messages(name: str, field: str, losses: Losses) -> str:
    """Return chat's name of a user, in field ``field``, as ``metadata.user_id``."""
    if len(name) <= _LONGEST_IN_MESSAGES and not _TELLS_WHO.fullmatch(name):
        return name
    losses.add(field, "Messages takes no long or personal names, so it gets a hash", hint=True)
    return _hash(name)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
