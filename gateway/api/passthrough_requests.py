"""A request to an API whose answers pass unread: a JSON object or a form, without the gateway's own fields."""

import re
import sys
from collections.abc import Callable, Iterable, Mapping

import msgspec

from gateway.api.auth import JSON
from gateway.api.client import Client
from gateway.api.json_body import Contents, MediaScan, decoded, is_set, read_model
from gateway.api.overrides import RaceOverride, read_override
from gateway.api.preferences import CONSUMED, Preferences, read_preferences
from gateway.api.request import INLINE
from gateway.core.errors import InvalidRequest
from gateway.core.prompt_classes import MeasuredApi
from gateway.fleet.fleet import Fleet
from gateway.settings import ModelKind, parsed_name
from providers import Api, Form, Steps, form_steps, raw_json
from providers.dialects import DIALECTS, RESPONSES, Malformed

# The list of APIs with routing and failover whose answers are not read: names, paths and required fields.

FORM = "multipart/form-data"


class RelayedApi(msgspec.Struct, frozen=True, kw_only=True):
    """One API."""

    endpoint: MeasuredApi  # as named in the ledger
    path: str  # at the provider
    api: Api  # that a deployment must support
    demands: Mapping[str, str] = {}  # required field → its expected content; alternative names are separated by a bar
    takes: tuple[str, ...] = (JSON,)
    kind: ModelKind | None = None  # of the default models, if a request names none; None: the model is required
    is_text: bool = True  # input and output are text, so a text price applies to the reported tokens
    by_character: str | None = None  # the field whose characters are paid for, whether or not tokens are reported
    by_query: bool = False  # some vendors are paid for each request, others for its tokens
    estimates: bool = False  # the input is text, so that its tokens can be estimated
    takes_extra_body: bool = True
    # Requests of up to so many bytes are answered soon, and asking twice changes nothing: late ones are hedged.
    short_bytes: int = 0
    is_indexed: bool = False  # its answers are kept beside earlier ones, so all must be made by the same model
    begins: Mapping[str, bytes] = {}  # how the JSON of a field begins: [ or {
    gives: bool = False  # later requests may name what its answers name

    @property
    def recalls(self) -> bool:
        """Whether its requests name earlier answers, which the gateway may know."""
        return self.api == RESPONSES.name

    @property
    def of(self) -> str:
        """The API whose requests may name what a provider stores as this one's do."""
        return self.api if self.api in DIALECTS else self.path

    def is_short(self, size: int) -> bool:
        """Whether an answer to a body of ``size`` bytes may be asked for twice, so that calls are hedged or raced."""
        return size <= self.short_bytes


_ANY_BYTES = sys.maxsize
_SHORT_SOUND_BYTES = 2**20  # of a file: about a minute

EMBEDDINGS = RelayedApi(
    endpoint=MeasuredApi.EMBEDDINGS,
    path="embeddings",
    api="embeddings",
    demands={"input": "a string, or an array of strings or tokens"},
    estimates=True,
    short_bytes=_ANY_BYTES,
    is_indexed=True,
)
MODERATIONS = RelayedApi(
    endpoint=MeasuredApi.MODERATIONS,
    path="moderations",
    api="moderations",
    demands={"input": "a string, or an array of strings or parts"},
    kind="moderation",
    estimates=True,
    short_bytes=_ANY_BYTES,
)
RERANK = RelayedApi(
    endpoint=MeasuredApi.RERANK,
    path="rerank",
    api="rerank",
    demands={"query": "the text to rank the documents by", "documents": "an array of strings or objects"},
    by_query=True,
    short_bytes=_ANY_BYTES,
)
# In beta: the shapes are those of openai 3.57.0 and google-genai 3.6.1 for Python, read on 2026-11-26. Neither is made
# into the other: an answer of probabilities is the vendor's own.
DECISIONS = RelayedApi(
    endpoint=MeasuredApi.DECISIONS,
    path="decisions",
    api="decisions",
    demands={"input": "a string, or an array of messages", "questions": "an array of questions"},
    begins={"questions": b"["},
    estimates=True,
    short_bytes=_ANY_BYTES,
)
GOOGLE_DECISIONS = RelayedApi(
    endpoint=MeasuredApi.DECISIONS,
    path="decisions",
    api="google_decisions",
    demands={"input": "a string, or parts", "questions": "an object with a question for each name"},
    begins={"questions": b"{"},
    estimates=True,
    short_bytes=_ANY_BYTES,
)
COMPACT = RelayedApi(
    endpoint=MeasuredApi.COMPACT,
    path="responses/compact",
    api="responses",
    takes_extra_body=False,  # it accepts only a few of the fields for answers
    gives=True,
)
SPEECH = RelayedApi(
    endpoint=MeasuredApi.SPEECH,
    path="audio/speech",
    api="audio",
    demands={"input": "the text to speak"},
    is_text=False,
    by_character="input",
    short_bytes=_ANY_BYTES,
)
TRANSCRIPTIONS = RelayedApi(
    endpoint=MeasuredApi.TRANSCRIPTIONS,
    path="audio/transcriptions",
    api="audio",
    demands={"file": "the audio to transcribe"},
    takes=(FORM,),
    short_bytes=_SHORT_SOUND_BYTES,
)
TRANSLATIONS = RelayedApi(
    endpoint=MeasuredApi.TRANSLATIONS,
    path="audio/translations",
    api="audio",
    demands={"file": "the audio to translate"},
    takes=(FORM,),
    short_bytes=_SHORT_SOUND_BYTES,
)
GENERATIONS = RelayedApi(
    endpoint=MeasuredApi.GENERATIONS,
    path="images/generations",
    api="images",
    demands={"prompt": "a description of the image"},
    kind="image",
)
EDITS = RelayedApi(
    endpoint=MeasuredApi.EDITS,
    path="images/edits",
    api="images",
    demands={"image|image[]|images": "the image or images to edit", "prompt": "a description of the change"},
    takes=(FORM, JSON),
    kind="image",
)
VARIATIONS = RelayedApi(
    endpoint=MeasuredApi.VARIATIONS,
    path="images/variations",
    api="images",
    demands={"image": "the image to vary"},
    takes=(FORM,),
    kind="image",
)


def counting_api(api: Api, path: str) -> RelayedApi:
    """Return the API at ``path`` that counts the tokens of prompts for ``api``."""
    return RelayedApi(
        endpoint=MeasuredApi.COUNT_TOKENS,
        path=path,
        api=api,
        is_text=False,  # counting costs nothing
        takes_extra_body=False,  # it accepts only a few of the fields for answers
    )


def default_model(api: RelayedApi, fleet: Fleet, client: Client) -> str:
    """Return the model for a request that names none: the only configured one for this API.

    Models are recognised by their names; if no name matches, by having a deployment with this API.

    Raises:
        InvalidRequest: there is none, or several.

    """
    open_ = [
        model
        for model in fleet.models.values()
        if (client.models is None or model.name in client.models)
        and any(api.api in each.apis and fleet.may_ask(each, client.tenant) for each in model.deployments.values())
    ]
    named = [
        model.name
        for model in open_
        if api.kind in {parsed_name(each.model).kind for each in model.deployments.values()}
        or parsed_name(model.name).kind == api.kind
    ]
    found = named or [model.name for model in open_]
    if api.kind is not None and len(found) == 1:
        return found[0]
    hint = f"name one of {', '.join(found)}" if found else "name one of GET /v1/models"
    raise InvalidRequest(f"'model' is missing: {hint}", param="model")


_OWN = CONSUMED | {"race"}
_STREAM = msgspec.json.Decoder(bool | None)
_STREAM_FORMAT = msgspec.json.Decoder(str | None)
_TEXT = msgspec.json.Decoder(str)
_ELEMENTS = msgspec.json.Decoder(list[msgspec.Raw])
_INTEGER = msgspec.json.Decoder(int)
_LONG = 100_000  # bytes: vendors speak a few thousand characters at a time
_YES = frozenset({"true", "1"})


class RelayedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request."""

    model: str
    fields: Mapping[str, msgspec.Raw]  # without the gateway's own fields; empty for a form
    form: Form | None
    size: int  # bytes
    scan_media: MediaScan | None = None  # of a large prompt
    race: RaceOverride
    preferences: Preferences
    stream: bool

    def characters(self, field: str) -> int:
        """Return the number of characters of a text; of a very long one the bytes, which are more."""
        raw = self.fields.get(field, b"")
        if len(raw) > _LONG:
            return len(raw)
        try:
            return len(_TEXT.decode(raw))
        except msgspec.DecodeError:  # not a text: the provider will say so
            return len(raw)

    def number_of(self, field: str) -> int:
        """Return the number of elements of an array; 0 if it is none."""
        try:
            return len(_ELEMENTS.decode(self.fields.get(field, b"[]")))
        except msgspec.DecodeError:
            return 0

    @property
    def dimensions(self) -> int:
        """How long vectors are to be; 0 if the request does not say."""
        try:
            return _INTEGER.decode(self.fields.get("dimensions", b"0"))
        except msgspec.DecodeError:  # the provider will say so
            return 0

    def inline_bytes(self, fields: Mapping[str, msgspec.Raw]) -> int | None:
        """Return the bytes of the body if its ``input`` is text or tokens, and the provider gets nothing else.

        ``fields`` are those that are sent.
        """
        text = fields.get("input")
        return None if text is None or not fields.keys() <= INLINE or b"{" in bytes(text) else self.size


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
    _check_contents(api, fields)
    stream = bool("stream" in fields and decoded("stream", fields["stream"], _STREAM))
    if "stream_format" in fields:
        stream = stream or decoded("stream_format", fields["stream_format"], _STREAM_FORMAT) == "sse"
    return RelayedRequest(
        model=model,
        fields=fields,
        form=None,
        size=contents.size,
        scan_media=contents.scan_media,
        race=read_override(raw_race, race_header),
        preferences=preferences,
        stream=stream,
    )


def multipart_steps(
    api: RelayedApi, content_type: str, body: bytes, race_header: str | None, default: Callable[[], str]
) -> Steps[RelayedRequest]:
    """Read a form, step by step. The gateway's own fields have their usual names and contain JSON.

    Raises:
        InvalidRequest: a field is invalid or missing.

    """
    try:
        form = yield from form_steps(content_type, body)
        own = {name: _as_json(name, form.text(name)) for name in form.names & (_OWN | {"model"})}
        stream = (form.text("stream") or "").strip().lower() in _YES or form.text("stream_format") == "sse"
        names = form.names
        form = yield from form.without_steps(_OWN)
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
        return read_model(fields).removeprefix("models/" if api is GOOGLE_DECISIONS else "")
    if preferences.models:
        return preferences.models[0]
    return read_model(fields) if api.kind is None else default()


def _demand(api: RelayedApi, said: Iterable[str]) -> None:
    names = frozenset(said)
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
    """Return a form's field as JSON: the model's name becomes a string, the others contain JSON already."""
    text = text or ""
    if name == "model" or (name == "race" and text.strip()[:1] not in {"{", '"'}):
        return raw_json(text)
    return msgspec.Raw(text.strip().encode() or b"null")
