"""A request to an API with answers that pass unread: a JSON object or a form, without the gateway's own fields."""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from gateway.access import Client
from gateway.api.overrides import read_override
from gateway.api.preferences import CONSUMED, Preferences, read_preferences
from gateway.api.relayed_api import RelayedApi
from gateway.api.request import Needs, ParsedRequest
from gateway.core.errors import InvalidRequest
from gateway.fleet import Fleet
from gateway.http import CHARS_PER_TOKEN, Contents, decoded, is_set, read_model
from gateway.settings import parsed_name
from providers import LONGEST_VALUE_BYTES, UNREADABLE, Form, Steps, form_steps, raw_json
from providers.dialects import PIVOT, Malformed


def default_model(api: RelayedApi, fleet: Fleet, client: Client) -> str:
    """Return the model for a request without one: the only configured model for this API.

    Models are recognised by their names; if no name matches, by a deployment with this API.

    Raises:
        InvalidRequest: no model, or several models, fit.

    """
    open_ = [
        model
        for model in fleet.models.values()
        if client.may_use(model.name)
        and any(api.api in each.apis and fleet.may_ask(each, client.tenant) for each in model.deployments.values())
    ]
    named = [
        model.name
        for model in open_
        if api.kind in {parsed_name(each.model).kind for each in model.deployments.values()}
        or parsed_name(model.name).kind == api.kind
    ]
    names = named or [model.name for model in open_]
    if api.kind is not None and len(names) == 1:
        return names[0]
    hint = f"name one of {', '.join(names)}" if names else "name one of GET /v1/models"
    raise InvalidRequest(f"'model' is missing: {hint}", param="model")


_OWN = CONSUMED | {"race"}
_STREAM = msgspec.json.Decoder(bool | None)
_STREAM_FORMAT = msgspec.json.Decoder(str | None)
_YES = frozenset({"true", "1"})
_BETWEEN_STEPS = re.compile(r"[\[\].]+")  # in a path as the name of a form's field
_MOST_STEPS = 50
_TEXTS = frozenset({"input", "instructions", "model", "prompt"})  # texts, even if they look like JSON


def read_json(
    api: RelayedApi, contents: Contents, race_header: str | None, default: Callable[[], str]
) -> ParsedRequest:
    """Read a JSON body; ``default`` returns the model of a body without ``model``.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    fields = contents.fields
    raw_race = fields.pop("race", None)
    preferences = read_preferences(fields)
    model = _model(api, fields, preferences, default)
    _demand(api, [name for name, raw in fields.items() if is_set(raw)])
    _check_contents(api, fields)
    stream = bool("stream" in fields and decoded("stream", fields["stream"], _STREAM))
    if "stream_format" in fields:
        stream = stream or decoded("stream_format", fields["stream_format"], _STREAM_FORMAT) == "sse"
    return ParsedRequest(
        dialect=PIVOT,
        relayed=api,
        model=model,
        fields=fields,
        size=contents.size,
        needs=_needs(api, fields, contents.size),
        race=read_override(raw_race, race_header),
        preferences=preferences,
        stream=stream,
        wants_usage=False,
        stateful=not api.is_short(contents.size),
        scan_media=contents.scan_media,
    )


def multipart_steps(
    api: RelayedApi, content_type: str, body: bytes, race_header: str | None, default: Callable[[], str]
) -> Steps[ParsedRequest]:
    """Read a form, step by step. The gateway's own fields have their usual names and contain JSON.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    try:
        form = yield from form_steps(content_type, body)
        own_fields = {name: _as_json(name, form.text(name)) for name in form.names & (_OWN | {"model"})}
        stream = (form.text("stream") or "").strip().lower() in _YES or form.text("stream_format") == "sse"
        names = form.names
        form = yield from form.without_steps(_OWN)
    except Malformed as malformed:
        raise InvalidRequest(malformed.message, param=malformed.param) from None
    for name in names:
        if (head := name.partition("[")[0]) in _OWN and head != name:  # provider[only], as SDKs flatten objects
            raise InvalidRequest(f"send {head!r} as one field of JSON", param=head)
    raw_race = own_fields.pop("race", None)
    preferences = read_preferences(own_fields)
    model = _model(api, own_fields, preferences, default)
    _demand(api, form.names)
    return ParsedRequest(
        dialect=PIVOT,
        relayed=api,
        model=model,
        fields={},
        size=len(body),
        needs=_needs(api, {}, len(body)),
        race=read_override(raw_race, race_header),
        preferences=preferences,
        stream=stream,
        wants_usage=False,
        stateful=not api.is_short(len(body)),
        form=form,
    )


def form_fields(form: Form) -> Steps[dict[str, msgspec.Raw]]:
    """Return a form's fields, without its files, in the shape of JSON: ``image[0][file_id]`` is within ``image``.

    Raises:
        InvalidRequest: a field of JSON is too long.

    """
    values_of: dict[str, list[object]] = {}
    for name, content in form.values():
        head, *steps = [each for each in _BETWEEN_STEPS.split(name) if each][:_MOST_STEPS] or [name]
        value: object = bytes(content[:LONGEST_VALUE_BYTES]).decode(errors="replace")
        if head not in _TEXTS and str(value).lstrip()[:1] in {"{", "["}:
            if len(content) > LONGEST_VALUE_BYTES:
                raise InvalidRequest(f"{name!r} is longer than {LONGEST_VALUE_BYTES} bytes", param=name)
            with suppress(*UNREADABLE):
                value = msgspec.json.decode(content, type=msgspec.Raw)
        for step in reversed(steps):
            value = value if step.isdigit() else {step: value}
        values_of.setdefault(head, []).append(value)
        yield
    return {name: raw_json(values[0] if len(values) == 1 else values) for name, values in values_of.items()}


def _needs(api: RelayedApi, fields: Mapping[str, msgspec.Raw], size: int) -> Needs:
    """Return the needs of a request; an ``input`` of text or tokens has the whole prompt in the body."""
    text = fields.get("input") if api.estimates else None
    is_inline = text is not None and b"{" not in bytes(text)
    return Needs(size // CHARS_PER_TOKEN if api.estimates else 0, inline=is_inline)


def _model(
    api: RelayedApi, fields: Mapping[str, msgspec.Raw], preferences: Preferences, default: Callable[[], str]
) -> str:
    if is_set(fields.get("model")):
        return read_model(fields).removeprefix("models/" if api.api == "google_decisions" else "")
    if preferences.models:
        return preferences.models[0]
    return read_model(fields) if api.kind is None else default()


def _demand(api: RelayedApi, fields: Iterable[str]) -> None:
    names = frozenset(fields)
    for spellings, hint in api.demands.items():
        first, *others = spellings.split("|")
        if names.isdisjoint((first, *others)):
            raise InvalidRequest(f"'{first}' is missing: {hint}", param=first)


def _check_contents(api: RelayedApi, fields: Mapping[str, msgspec.Raw]) -> None:
    for name, hint in api.demands.items():
        raw = fields.get(name)
        if raw is None:
            continue
        if _EMPTY.match(raw):
            raise InvalidRequest(f"{name!r} must not be empty: {hint}", param=name)
        if not bytes(memoryview(raw)[:_HEAD_BYTES]).lstrip().startswith(api.begins.get(name, b"")):
            raise InvalidRequest(f"{name!r} must be {hint}", param=name)


_EMPTY = re.compile(rb"\s*(?:\[\s*\]|\{\s*\})\s*$")
_HEAD_BYTES = 64


def _as_json(name: str, text: str | None) -> msgspec.Raw:
    """Return a form's field as JSON: the model's name becomes a string, the other fields contain JSON already."""
    text = text or ""
    if name == "model" or (name == "race" and text.strip()[:1] not in {"{", '"'}):
        return raw_json(text)
    return msgspec.Raw(text.strip().encode() or b"null")
