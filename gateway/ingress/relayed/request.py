"""A request to an API without races, read once: a JSON object or a form, without the gateway's own fields."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gateway.errors import InvalidRequest
from gateway.ingress.body import Contents, decoded, is_set, read_model
from gateway.ingress.preferences.override import RaceOverride, read_override
from gateway.ingress.preferences.provider_preferences import CONSUMED, Preferences, read_preferences
from gateway.ingress.relayed.apis import RelayedApi
from gateway.ingress.survey import Survey
from providers.dialects.wording import Malformed
from providers.multipart import Form, read_form

_OWN = CONSUMED | {"race"}
_STREAM = msgspec.json.Decoder(bool | None)
_STREAM_FORMAT = msgspec.json.Decoder(str | None)
_YES = frozenset({"true", "1"})


class RelayedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request."""

    model: str
    fields: Mapping[str, msgspec.Raw]  # without the gateway's own fields; empty for a form
    form: Form | None
    size: int  # bytes
    survey: Survey | None = None  # of a large prompt
    race: RaceOverride
    preferences: Preferences
    stream: bool


def read_json(
    api: RelayedApi, contents: Contents, race_header: str | None, default: Callable[[], str]
) -> RelayedRequest:
    """Read a JSON body; ``default`` returns the model to use if it names none.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    fields = contents.fields
    raw_race = fields.pop("race", None)
    preferences = read_preferences(fields)
    model = _model(api, fields, preferences, default)
    _demand(api, [name for name, raw in fields.items() if is_set(raw)])
    stream = bool("stream" in fields and decoded("stream", fields["stream"], _STREAM))
    if "stream_format" in fields:
        stream = stream or decoded("stream_format", fields["stream_format"], _STREAM_FORMAT) == "sse"
    return RelayedRequest(
        model=model,
        fields=fields,
        form=None,
        size=contents.size,
        survey=contents.survey,
        race=read_override(raw_race, race_header),
        preferences=preferences,
        stream=stream,
    )


def read_multipart(
    api: RelayedApi, content_type: str, body: bytes, race_header: str | None, default: Callable[[], str]
) -> RelayedRequest:
    """Read a form. The gateway's own fields have their usual names and contain JSON.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    try:
        form = read_form(content_type, body)
        own = {name: _as_json(name, form.text(name)) for name in form.names & (_OWN | {"model"})}
        stream = (form.text("stream") or "").strip().lower() in _YES or form.text("stream_format") == "sse"
        names = form.names
        form = form.without(_OWN)
    except Malformed as malformed:
        raise InvalidRequest(malformed.message, param=malformed.param) from None
    for name in names:
        if (head := name.partition("[")[0]) in _OWN and head != name:  # provider[only], as SDKs flatten objects
            raise InvalidRequest(f"send {head!r} as one field of JSON", param=head)
    raw_race = own.pop("race", None)
    preferences = read_preferences(own)
    model = _model(api, own, preferences, default)
    _demand(api, form.names)
    return RelayedRequest(
        model=model,
        fields={},
        form=form,
        size=len(body),
        race=read_override(raw_race, race_header),
        preferences=preferences,
        stream=stream,
    )


def _model(
    api: RelayedApi, fields: Mapping[str, msgspec.Raw], preferences: Preferences, default: Callable[[], str]
) -> str:
    if is_set(fields.get("model")):
        return read_model(fields)
    if preferences.models:
        return preferences.models[0]
    return read_model(fields) if api.kind is None else default()


def _demand(api: RelayedApi, said: Iterable[str]) -> None:
    names = frozenset(said)
    for spellings, hint in api.demands.items():
        first, *others = spellings.split("|")
        if names.isdisjoint((first, *others)):
            raise InvalidRequest(f"'{first}' is missing: {hint}", param=first)


def _as_json(name: str, text: str | None) -> msgspec.Raw:
    """Return a form's field as JSON: the model's name becomes a string, the others contain JSON already."""
    text = text or ""
    if name == "model" or (name == "race" and text.strip()[:1] not in {"{", '"'}):
        return msgspec.Raw(msgspec.json.encode(text))
    return msgspec.Raw(text.strip().encode() or b"null")
