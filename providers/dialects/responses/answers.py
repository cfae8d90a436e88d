"""Whole responses: presented as an event stream, and gathered from one."""

from collections.abc import Sequence
from typing import Any

import msgspec

from providers.dialects.chunk import Chunk
from providers.dialects.gathering import Gathering
from providers.dialects.responses.errors import upstream_error
from providers.dialects.responses.fields import Object
from providers.dialects.responses.retelling import retell
from providers.dialects.responses.telling import Telling
from providers.errors import ErrorKind, UpstreamError
from providers.json_answer import read_answer

ENDING = b""  # the last event contains the whole response, so it cannot be made up

_NULL = msgspec.Raw(b"null")
_EMPTY = (_NULL, msgspec.Raw(b"[]"))
_FAILED = (msgspec.Raw(b'"failed"'), msgspec.Raw(b'"cancelled"'))
_INCOMPLETE = msgspec.Raw(b'"incomplete"')
_IN_PROGRESS = msgspec.Raw(b'"in_progress"')

_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    output_index: int = 0
    item: msgspec.Raw = _NULL
    response: msgspec.Raw = _NULL


_events = msgspec.json.Decoder(_Event)
_objects = msgspec.json.Decoder(Object)
_lists = msgspec.json.Decoder(list[msgspec.Raw])


def events_of_answer(body: bytes, secrets: Sequence[str] = ()) -> bytes:
    """Return a response as stream events: its items, with one delta for each of their texts, and its end.

    Raises:
        UpstreamError: it is empty (upstream_empty), not a response (invalid_response), or failed or an error (its kind
            is that of its code).

    """
    answer = _read(body, secrets)
    telling = Telling()
    try:
        items = _lists.decode(answer.get("output", _NULL))
        began: dict[str, Any] = {**answer, "status": _IN_PROGRESS, "output": [], "usage": None}
        for state in ("created", "in_progress"):
            telling.say(f"response.{state}", response=began)
        for index, item in enumerate(items):
            retell(telling, index, item)
    except msgspec.ValidationError:
        raise UpstreamError(ErrorKind.INVALID_RESPONSE, "answered with JSON that is not a response") from None
    end = "incomplete" if answer.get("status") == _INCOMPLETE else "completed"
    telling.say(f"response.{end}", response=msgspec.Raw(body.strip()))
    return telling.take()


class ResponseGathering(Gathering):
    """Takes the response from the last event; if that has no output, from the items sent before."""

    def __init__(self) -> None:
        self._response = msgspec.Raw(b"{}")
        self._fields: Object = {}  # of the response
        self._items: dict[int, msgspec.Raw] = {}  # by their index in the output

    def take(self, chunk: Chunk) -> None:
        """Take one event.

        Raises:
            UpstreamError: it is valid JSON, but not an event of a response (invalid_response).

        """
        try:
            event = _events.decode(chunk.data)
            if event.response != _NULL:
                self._fields = _objects.decode(event.response)
                self._response = event.response
        except _NOT_JSON as error:
            message = f"sent an invalid event: {type(error).__name__}"
            raise UpstreamError(ErrorKind.INVALID_RESPONSE, message) from None
        if event.type == "response.output_item.done":
            self._items[event.output_index] = event.item

    def body(self) -> bytes:
        """Return the whole response as JSON, unchanged if an event contained all of it."""
        if not self._items:
            return bytes(self._response)
        if self._fields.get("output", _NULL) not in _EMPTY:
            return bytes(self._response)
        return msgspec.json.encode({**self._fields, "output": [self._items[index] for index in sorted(self._items)]})


def _read(body: bytes, secrets: Sequence[str]) -> Object:
    """Read the top level of a response."""
    try:
        answer = _objects.decode(body)
    except _NOT_JSON:
        return read_answer(body, secrets)
    if answer.get("status") in _FAILED:
        error = msgspec.json.decode(answer.get("error", _NULL))
        told = error if isinstance(error, dict) and error else {"message": "the provider did not finish the response"}
        raise upstream_error(told, secrets)
    return read_answer(body, secrets)
