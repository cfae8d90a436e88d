"""A race of a prompt at a running gateway: the answer as it streams, then the lanes, from the call's row."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from gateway.cli.race_lanes import Lane, Lanes, read_text
from gateway.cli.race_run import TAGS, Question
from gateway.cli.race_view import View
from gateway.cli.remote import GatewayError, get, posted
from gateway.core.attempts import AttemptRecord, AttemptStart
from gateway.core.calls import CallRecord

_SILENT_S = 600.0  # a model may think for minutes, and the gateway has limits of its own
_STORED_WITHIN_S = 5.0  # the end of a call is known at once; of another worker's, when its row is stored
_AGAIN_S = 0.15
_NOT_FOUND = 404
_T = TypeVar("_T", AttemptRecord, CallRecord)


def models_of(url: str, key: str | None) -> list[str]:
    """Return the models of the gateway that this key may use.

    Raises:
        GatewayError: the gateway could not be asked.

    """
    address = f"{url}/v1/models"
    try:
        return [str(each["id"]) for each in msgspec.json.decode(get(address, key))["data"]]
    except (msgspec.DecodeError, KeyError, TypeError):
        raise GatewayError(f"{address} does not answer like a Holeshot gateway") from None


def race_at(url: str, key: str | None, question: Question, view: View) -> Lanes:
    """Race ``question`` at the gateway, and show it in ``view``; without a complete answer the lanes have an ``error``.

    The lanes are those of the call's row, which only an admin, an operator or a viewer may read.

    Raises:
        GatewayError: the gateway could not be asked, or refused.
        OSError: the output is closed.

    """
    lanes = Lanes(time.monotonic, view)
    tags = ",".join(f"{name}={value}" for name, value in TAGS.items())
    view.begins(lanes)
    try:
        body, headers = msgspec.json.encode(question.body()), {"x-holeshot-tags": tags}
        with posted(f"{url}/v1/chat/completions", key, body, _SILENT_S, headers) as answer:
            call_id = answer.headers.get("x-holeshot-call-id")
            lanes.error = _read(answer, lanes)
        found = None if call_id is None else _row(url, key, call_id)
        if found is not None:
            _fill(lanes, found)
    finally:
        view.ends(lanes)
    return lanes


def _read(answer: Iterable[bytes], lanes: Lanes) -> str | None:
    """Add the answer's text as it comes; return why it is not complete."""
    for line in answer:
        data = line.strip().removeprefix(b"data: ")
        if data == line.strip():  # an empty line, or a comment
            continue
        if data == b"[DONE]":
            return None
        if (error := msgspec.json.decode(data).get("error")) is not None:
            return f"the answer broke off ({error.get('message')})"
        lanes.add_text(*read_text(data))
    return "the answer broke off (the connection ended before it did)"


def _row(url: str, key: str | None, call_id: str) -> dict[str, Any] | None:
    """Return the call with its attempts, once it has ended; None if this key may not read it, or it is nowhere."""
    until = time.monotonic() + _STORED_WITHIN_S
    while time.monotonic() < until:
        try:
            found: dict[str, Any] = msgspec.json.decode(get(f"{url}/api/calls/{call_id}", key))
        except GatewayError as error:
            if error.status != _NOT_FOUND:
                return None
        else:
            if found.get("source") != "running":
                return found
        time.sleep(_AGAIN_S)
    return None


def _fill(lanes: Lanes, found: Mapping[str, Any]) -> None:
    """Add the lanes of a call that has ended, and tell how each did."""
    attempts = tuple(_read_as(AttemptRecord, each) for each in found["attempts"])
    record = msgspec.structs.replace(_read_as(CallRecord, found["call"]), attempts=attempts)
    lanes.claimed_ms = record.ttft_ms
    for each in attempts:
        start = AttemptStart(
            each.id, each.number, each.started_at, each.role, each.provider, each.deployment, each.launch_offset_ms
        )
        lane = Lane(start)
        lane.first_token_ms = each.ttft_ms
        lane.ended_ms = each.last_token_ms if each.censored_at_ms is None else each.censored_at_ms
        lanes.lanes.append(lane)
    lanes.call_finished(record)
    for lane in lanes.lanes:
        lanes.tell(lane)


def _read_as(kind: type[_T], row: Mapping[str, Any]) -> _T:
    """Return a row as the record that it was made of; what is null there and has a default keeps that."""
    fields = [field for field in msgspec.structs.fields(kind) if field.name in row]
    known = {field.name: row[field.name] for field in fields if field.required or row[field.name] is not None}
    return msgspec.convert(known, kind, strict=False)
