"""Pictures and documents in a tool's result, which in chat is text: they follow, in the user's turn."""

SHOWN_LATER = "chat's tool results are text: what else there is follows in the user's turn"
SEE_BELOW = "(Shown in the user's next message.)"


def shown(call_id: str) -> str:
    """Return what stands in the user's turn before something that the tool called ``call_id`` showed."""
    return f"(Part of the result of tool call {call_id}:)"
