"""What vendors refuse of a request by itself, whichever model it names: types, bounds, ids, and orders of a history."""

from collections.abc import Iterator

from strict_vendors.apis.kept import Kept, as_items, check_history
from strict_vendors.apis.messages import in_pydantics_words
from strict_vendors.known.anthropic import Anthropic
from strict_vendors.known.openai import OpenAI
from strict_vendors.rules.anthropic import MESSAGES
from strict_vendors.rules.openai import CHAT
from strict_vendors.rules.responses import RESPONSES
from strict_vendors.shapes import Record, faults
from strict_vendors.vendor import Json, Refused
from strict_vendors.words import in_openais_words


def wrong_in(path: str, body: Json) -> Iterator[Refused]:
    """Yield what OpenAI, or of Messages Anthropic, refuses of a request; fields that are unknown are no fault here.

    Raises:
        Refused: likewise, for the order of a history.

    """
    match path:
        case "/v1/chat/completions":
            yield from _of_fields(CHAT, body)
            OpenAI().check_messages(body["messages"])
        case "/v1/responses":
            body = {**body, "input": as_items(body.get("input"))}
            yield from _of_fields(RESPONSES, body)
            if body.get("previous_response_id") is None and body.get("conversation") is None:
                check_history(body["input"], Kept())
        case "/v1/messages":
            for fault in faults(MESSAGES, body):
                if fault.kind != "unknown":
                    yield in_pydantics_words(fault)
            Anthropic().check_turns(body)
        case _:
            pass


def _of_fields(shape: Record, body: Json) -> Iterator[Refused]:
    for fault in faults(shape, body):
        if fault.kind != "unknown":
            yield in_openais_words(fault)
