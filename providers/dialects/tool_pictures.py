"""Pictures and documents in a tool's result. In chat a result is text, so they follow in the user's turn."""

SHOWN_LATER = "chat's tool results are text only: this follows in the user's turn"
SEE_BELOW = "(Shown in the user's next message.)"


def shown(call_id: str) -> str:
    """Return the text that introduces, in the user's turn, a picture or document from tool call ``call_id``."""
    return f"(Part of the result of tool call {call_id}:)"
