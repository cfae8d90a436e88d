"""Why completions are not translated: a raw prompt is continued, messages are answered."""

from collections.abc import Mapping

import msgspec

from providers.dialects.wording import Loss, Wording


def to_chat(fields: Mapping[str, msgspec.Raw], *, thoughts: bool = False) -> Wording:
    """Return why a completion cannot be a chat completion, and no request at all."""
    del fields, thoughts  # whatever it asks for
    return Wording({}, (Loss("prompt", "chat completions answer messages; they do not continue a raw prompt"),))


def from_chat(fields: Mapping[str, msgspec.Raw]) -> Wording:
    """Return why a chat completion cannot be a completion, and no request at all."""
    del fields  # whatever it asks for
    return Wording({}, (Loss("messages", "completions continue a raw prompt; they have no chat template"),))
