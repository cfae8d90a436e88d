"""The parts of requests and answers that name what a provider stores under the operator's key: a table of all APIs."""

import itertools
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec


class StoredKind(StrEnum):
    """What is named."""

    RESPONSE = "response"
    MESSAGE = "message"
    CREDIT = "credit of a refusal"
    ITEM = "item of a response"
    CONVERSATION = "conversation"
    PROMPT = "prompt"
    FILE = "file"
    STORE = "store of documents"
    CONTAINER = "container"
    SKILL = "skill"
    AUDIO = "spoken answer"
    VOICE = "voice"
    CACHE = "cached prompt"
    SOURCE = "source of data"
    SERVER = "MCP server"  # named by its URL; not stored, but the provider calls it
    CONNECTOR = "connector"  # likewise, named by its id


class Named(msgspec.Struct, frozen=True):
    """A name in a request or answer."""

    field: str  # input[0].content[1].file_id
    kind: StoredKind
    value: str


class Place(msgspec.Struct, frozen=True):
    """Where names are.

    ``path``: field names with dots between them. ``name[]`` are the elements of a list (or the value itself, where it
    is none), ``*`` is every field, and ``**`` an object and all objects within it, except those that ``OPAQUE`` lists.
    Fields are equal without regard to case and underscores, as Google's and Go's JSON readers are lenient.
    """

    path: str
    kind: StoredKind
    when: Callable[[Mapping[str, Any]], bool] | None = None  # of the object with the name; None: always


def _is_reference(item: Mapping[str, Any]) -> bool:
    """Whether an item of the Responses API stands for a stored one. Without a type it does if it has nothing else."""
    kind = item.get("type")
    if kind == "image_generation_call":  # a further edit of the picture
        return not item.get("result")
    return kind == "item_reference" or (kind is None and "role" not in item)


_K = StoredKind
_OF_A_TOOL = (
    ("vector_store_ids[]", _K.STORE),
    ("container", _K.CONTAINER),
    ("container.file_ids[]", _K.FILE),
    ("container.skills[].skill_id", _K.SKILL),
    ("environment.container_id", _K.CONTAINER),
    ("environment.file_ids[]", _K.FILE),
    ("environment.skills[].skill_id", _K.SKILL),
    ("file_ids[]", _K.FILE),
    ("input_image_mask.file_id", _K.FILE),
    ("server_url", _K.SERVER),
    ("connector_id", _K.CONNECTOR),
    ("tunnel_id", _K.CONNECTOR),
)
# A list of tools may have a namespace, which has tools itself.
_OPENAIS_TOOLS = tuple(
    Place(f"{tools}.{path}", kind) for tools in ("tools[]", "tools[].**.tools[]") for path, kind in _OF_A_TOOL
)
# And items add some: additional_tools, tool_search_output.
_TOOLS_OF_ITEMS = tuple(Place(f"input[].**.tools[].{path}", kind) for path, kind in _OF_A_TOOL)
_OPENAIS_STATE = (
    Place("conversation", _K.CONVERSATION),
    Place("conversation.id", _K.CONVERSATION),
    Place("prompt.id", _K.PROMPT),
)
_GOOGLES = (
    Place("cachedContent", _K.CACHE),
    Place("contents[].**.fileUri", _K.FILE),
    Place("systemInstruction.**.fileUri", _K.FILE),
    Place("tools[].fileSearch.fileSearchStoreNames[]", _K.STORE),
    Place("tools[].retrieval.vertexAiSearch.datastore", _K.STORE),
    Place("tools[].retrieval.vertexAiSearch.engine", _K.STORE),
    Place("tools[].retrieval.vertexAiSearch.dataStoreSpecs[].dataStore", _K.STORE),
    Place("tools[].retrieval.vertexRagStore.ragCorpora[]", _K.STORE),
    Place("tools[].retrieval.vertexRagStore.ragResources[].ragCorpus", _K.STORE),
    Place("tools[].retrieval.externalApi.endpoint", _K.SERVER),
    Place("tools[].mcpServers[].streamableHttpTransport.url", _K.SERVER),
)

# By API (of the relayed ones, their path at the provider): what a request may name.
ASKED: Mapping[str, tuple[Place, ...]] = {
    "chat": (
        *_OPENAIS_TOOLS,
        *_OPENAIS_STATE,
        Place("previous_response_id", _K.RESPONSE),
        Place("messages[].**.file_id", _K.FILE),
        Place("messages[].**.url", _K.FILE),
        Place("messages[].audio.id", _K.AUDIO),
        Place("data_sources[].type", _K.SOURCE),  # Azure reads them under the operator's identity
    ),
    "responses": (
        *_OPENAIS_TOOLS,
        *_TOOLS_OF_ITEMS,
        *_OPENAIS_STATE,
        Place("previous_response_id", _K.RESPONSE),  # also of what counts tokens or makes a conversation shorter
        Place("prompt.variables.*.file_id", _K.FILE),
        Place("prompt_cache_options.comparison_response_id", _K.RESPONSE),
        Place("input[].id", _K.ITEM, _is_reference),
        Place("input[].approval_request_id", _K.ITEM),
        Place("input[].**.file_id", _K.FILE),
        Place("input[].**.image_url", _K.FILE),
        Place("input[].**.file_url", _K.FILE),
        Place("input[].**.container_id", _K.CONTAINER),
    ),
    "messages": (
        Place("messages[].**.file_id", _K.FILE),
        Place("messages[].**.url", _K.FILE),
        Place("container", _K.CONTAINER),
        Place("container.id", _K.CONTAINER),
        Place("container.skills[].skill_id", _K.SKILL),
        Place("mcp_servers[].url", _K.SERVER),
        Place("thread.previous_message_id", _K.MESSAGE),
        Place("diagnostics.previous_message_id", _K.MESSAGE),
        Place("fallback_credit_token", _K.CREDIT),
        Place("fallback_credit_token.token", _K.CREDIT),
    ),
    "gemini": (
        *_GOOGLES,
        *(
            Place(f"generateContentRequest.{place.path}", place.kind) for place in _GOOGLES
        ),  # of which tokens are counted
    ),
    "images/edits": (
        Place("image[].file_id", _K.FILE),
        Place("images[].file_id", _K.FILE),
        Place("mask.file_id", _K.FILE),
    ),
    "audio/speech": (Place("voice.id", _K.VOICE),),
}

# Fields beside the prompt and the tools with such names; the rest of a request of text alone needs no search.
NAMES_STORED = frozenset(
    {"cachedContent", "container", "conversation", "data_sources", "mcp_servers", "previous_response_id"}
    | {"diagnostics", "fallback_credit_token", "prompt_cache_options", "systemInstruction", "thread"}
)
# What one organisation alone has, and no operator shares: it is looked up even where there are no clients. With a
# container too, which may also be unknown then.
HELD = frozenset({StoredKind.CONTAINER, StoredKind.CREDIT, StoredKind.MESSAGE})
HOLDING = frozenset({"container", "diagnostics", "fallback_credit_token", "thread"})  # fields of a request that name it
KEEPS_NONE = "keeps no conversation"  # why a request that goes on with a conversation does not fit
# Fields and headers of a request whose answer names what it may.
GIVES_STORED = HOLDING | {"audio"}
GIVING_HEADERS: Mapping[str, str] = {"anthropic-beta": "fallback-credit"}  # and a part of their value

# By API: what an answer, or an event of its stream, gives a client to name.
_RESPONSE = (
    ("id", _K.RESPONSE),
    ("conversation.id", _K.CONVERSATION),
    *((f"output[].{path}", kind) for path, kind in (("id", _K.ITEM), ("container_id", _K.CONTAINER))),
    ("output[].environment.container_id", _K.CONTAINER),
    ("output[].content[].annotations[].file_id", _K.FILE),
    ("output[].content[].annotations[].container_id", _K.CONTAINER),
    ("output[].results[].file_id", _K.FILE),
)
ANSWERED: Mapping[str, tuple[Place, ...]] = {
    "chat": (Place("choices[].message.audio.id", _K.AUDIO), Place("choices[].delta.audio.id", _K.AUDIO)),
    "responses": (
        *(Place(path, kind, lambda answer: "type" not in answer) for path, kind in _RESPONSE[:1]),  # events have one
        *(Place(path, kind) for path, kind in _RESPONSE[1:]),
        *(Place(f"response.{path}", kind) for path, kind in _RESPONSE),
        *(Place(path.replace("output[]", "item"), kind) for path, kind in _RESPONSE if path.startswith("output[]")),
    ),
    "messages": (
        Place("id", _K.MESSAGE, lambda answer: answer.get("type") == "message"),
        Place("message.id", _K.MESSAGE),
        *(Place(f"{before}container.id", _K.CONTAINER) for before in ("", "message.", "delta.")),
        *(Place(f"{before}stop_details.fallback_credit_token", _K.CREDIT) for before in ("", "message.", "delta.")),
        Place("content[].content.content[].file_id", _K.FILE),
        Place("content_block.content.content[].file_id", _K.FILE),
    ),
}

# Fields whose values are the client's own data, whatever it is called: arguments of calls, schemas, labels.
OPAQUE = frozenset(
    {"args", "arguments", "attributes", "input", "inputschema", "metadata", "parameters", "response", "schema"}
)
# Files by URL: those that a provider reads with the operator's rights, not as anybody could.
_PRIVATE_URL = re.compile(
    r"\s*(?:files/|(?!https?:|data:)[a-z][a-z0-9+.-]*:"
    r"|https?:[/\\]*[^/\\?#]*\b(?:generativelanguage|[a-z0-9-]*aiplatform)\.googleapis\.com)",
    re.IGNORECASE,
)
_URLS = frozenset({"fileuri", "fileurl", "imageurl", "url"})
_OWN_SKILL = "skill_"  # how the ids of uploaded skills begin; vendors' own are everybody's
_SLICE_BYTES = 2**17  # searched, or done else, before a pause: one to three milliseconds
_STRADDLING_BYTES = 256  # a name that begins in a slice ends within these
_ELEMENT, _DECODED = 50, 2_500  # what an element, and one that is decoded, takes: in bytes that are searched
_LOWER = bytes(range(256)).lower()
_ESCAPED = r"\\u00[4-7]"  # a letter or underscore of a name may be written so


class _Rule(msgspec.Struct, frozen=True):
    place: Place
    steps: tuple[tuple[str, bool], ...]  # the plain name, and whether its elements follow


class StoredField(msgspec.Struct, frozen=True):
    """What one field at the top level of a body, or of an event, may name."""

    rules: tuple[_Rule, ...]
    names: tuple[bytes, ...]  # the last ones of the rules, plain and with their quotes; none if all JSON may be a name
    hint: re.Pattern[bytes]  # is found in its JSON wherever there may be a name

    def hinted(self, raw: msgspec.Raw) -> Generator[None, None, bool]:
        """Return whether the hint is found in JSON, slice by slice if it is long.

        Of a long one all underscores are left out: that takes a tenth of the pattern's time.
        """
        view = memoryview(raw)
        if len(view) <= _SLICE_BYTES or not self.names:
            return self.hint.search(raw) is not None
        for at in range(0, len(view), _SLICE_BYTES):
            part = bytes(view[at : at + _SLICE_BYTES + _STRADDLING_BYTES])
            bare = part.translate(_LOWER, b"_")
            if any(name in bare for name in self.names) or (b"\\u00" in part and self.hint.search(part)):
                return True
            yield
        return False

    def named_in(self, field: str, raw: msgspec.Raw) -> Iterator[Named | None]:
        """Yield what the value of ``field`` names, in which the hint was found; None wherever work may pause.

        Only elements in which the hint is found are decoded.
        """
        if not _ARRAY.match(raw):
            yield from self._named(field, msgspec.json.decode(raw), is_element=False)
            return
        elements, worked = _elements.decode(raw), 0
        yield None
        for index, element in enumerate(elements):
            worked += len(memoryview(element)) + _ELEMENT
            if (yield from self.hinted(element)):
                yield from self._named(f"{field}[{index}]", msgspec.json.decode(element), is_element=True)
                worked += _DECODED
            if worked > _SLICE_BYTES:
                worked = 0
                yield None

    def _named(self, path: str, value: object, *, is_element: bool) -> Iterator[Named]:
        for rule in self.rules:
            (_, each), *rest = rule.steps
            if is_element and not each:
                continue
            for field, found, holder in _found(value, rest, path, {}):
                named = _name(rule, field, found)
                if named is not None and (rule.place.when is None or rule.place.when(holder)):
                    yield named


def asked_fields(api: str) -> Mapping[str, StoredField]:
    """Return what requests of ``api`` may name, by the plain name of the field at the top level."""
    return _ASKED.get(api, {})


def named_in_answer(api: str, answer: bytes) -> Iterator[Named]:
    """Yield what an answer, or the data of one of its events, gives a client to name. None in what is not an object."""
    table = _ANSWERED.get(api)
    if not table or not any(field.hint.search(answer) for field in table.values()):
        return
    try:
        said = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for field in table.values():
        for rule in field.rules:
            for path, found, holder in _found(said, rule.steps, "", {}):
                named = _name(rule, path, found)
                if named is not None and (rule.place.when is None or rule.place.when(holder)):
                    yield named


# Names at places that the table does not have: only what is called so, and has the form of such a name. Not within
# schemas, arguments and outputs of functions, and labels.
_STRAYS: Mapping[str, tuple[StoredKind, str]] = {
    "fileid": (_K.FILE, r"file[-_]\w|assistant-\w"),
    "fileids": (_K.FILE, r"file[-_]\w|assistant-\w"),
    "vectorstoreid": (_K.STORE, r"vs_\w"),
    "vectorstoreids": (_K.STORE, r"vs_\w"),
    "container": (_K.CONTAINER, r"(?:cntr|container)_\w"),
    "containerid": (_K.CONTAINER, r"(?:cntr|container)_\w"),
    "skillid": (_K.SKILL, r"skill_\w"),
    "previousresponseid": (_K.RESPONSE, r"resp_\w"),
    "responseid": (_K.RESPONSE, r"resp_\w"),
    "conversation": (_K.CONVERSATION, r"conv_\w"),
    "conversationid": (_K.CONVERSATION, r"conv_\w"),
    "cachedcontent": (_K.CACHE, r"cachedContents/\w|projects/"),
    "serverurl": (_K.SERVER, r"\s{0,64}(?:https?|wss?):"),
    "connectorid": (_K.CONNECTOR, r"connector_\w"),
    "tunnelid": (_K.CONNECTOR, r"tunnel_\w"),
}
_STRAY_FORMS = {name: re.compile(form, re.IGNORECASE) for name, (_, form) in _STRAYS.items()}
_LONGEST_STRAY_FIRST = sorted(_STRAYS, key=len, reverse=True)
_STRAY = re.compile(
    f'"(?:{"|".join(map("_?".join, _LONGEST_STRAY_FIRST))})"\\s*:\\s*(?:\\[\\s*)?"|{_ESCAPED}'.encode(), re.IGNORECASE
)
_NO_STRAYS = frozenset({"default", "enum", "examples", "output", "properties", "result"})
_VALUES_AT_ONCE = 1_000  # are looked at before a pause
_SCHEMA = "schema"  # how the names of fields end that have one


def hinted_stray(field: str, raw: msgspec.Raw) -> Generator[None, None, bool]:
    """Return whether a field that no table has may name something, slice by slice if it is long."""
    name = plain(field)
    if name in _STRAYS:
        return True
    if name in OPAQUE or name.endswith(_SCHEMA):
        return False
    view = memoryview(raw)
    for at in range(0, len(view), _SLICE_BYTES):
        if _STRAY.search(view[at : at + _SLICE_BYTES + _STRADDLING_BYTES]):
            return True
        yield
    return False


def strays_in(field: str, raw: msgspec.Raw) -> Iterator[Named | None]:
    """Yield what JSON names at places that no table has: by its name there, and the form of its value.

    None wherever work may pause.
    """
    left: list[tuple[str, str, object]] = [(plain(field), field, msgspec.json.decode(raw))]
    for count in itertools.count(1):
        if not left:
            return
        if count % _VALUES_AT_ONCE == 0:
            yield None
        name, path, value = left.pop()
        if isinstance(value, dict):
            left += [
                (key_name, f"{path}.{key}", each)
                for key, each in value.items()
                if not ((key_name := plain(key)) in OPAQUE or key_name in _NO_STRAYS or key_name.endswith(_SCHEMA))
            ]
        elif isinstance(value, list):
            left += [(name, f"{path}[{n}]", each) for n, each in enumerate(value)]
        elif isinstance(value, str) and (form := _STRAY_FORMS.get(name)) is not None and form.match(value):
            yield Named(path, _STRAYS[name][0], value)


_Steps = Sequence[tuple[str, bool]]
_Object = Mapping[str, Any]
_ARRAY = re.compile(rb"\s*\[")
_elements = msgspec.json.Decoder(list[msgspec.Raw])


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """Return a field's name without case and underscores."""
    return name.replace("_", "").lower()


def _found(value: object, steps: _Steps, path: str, holder: _Object) -> Iterator[tuple[str, object, _Object]]:
    """Yield where ``steps`` lead: the path, the value, and the object that has it."""
    if not steps:
        yield path, value, holder
        return
    (name, each), *rest = steps
    if name == "**":
        for inner, at in _objects(value, path):
            yield from _found(inner, rest, at, inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if name not in ("*", plain(key)):
                continue
            at = f"{path}.{key}" if path else key
            if each and isinstance(inner, list):
                for index, element in enumerate(inner):
                    yield from _found(element, rest, f"{at}[{index}]", value)
            else:
                yield from _found(inner, rest, at, value)


def _objects(value: object, path: str) -> Iterator[tuple[_Object, str]]:
    left = [(value, path)]
    while left:
        inner, at = left.pop()
        if isinstance(inner, dict):
            yield inner, at
            left += [
                (each, f"{at}.{key}")
                for key, each in inner.items()
                if isinstance(each, dict | list) and plain(key) not in OPAQUE
            ]
        elif isinstance(inner, list):
            left += [(each, f"{at}[{n}]") for n, each in enumerate(inner) if isinstance(each, dict | list)]


def _name(rule: _Rule, field: str, value: object) -> Named | None:
    """Return what ``value`` names; None if it is another form of the field, or what anybody may use."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return None
    place, name = rule.place, str(value)
    if rule.steps[-1][0] in _URLS and place.kind is StoredKind.FILE and not _PRIVATE_URL.match(name):
        return None
    if place.kind is StoredKind.SKILL and not name.startswith(_OWN_SKILL):
        return None
    return Named(field, place.kind, name)


def _fields(places: Iterable[Place]) -> dict[str, StoredField]:
    rules: dict[str, list[_Rule]] = {}
    for place in places:
        steps = tuple((plain(part.removesuffix("[]")), part.endswith("[]")) for part in place.path.split("."))
        rules.setdefault(steps[0][0], []).append(_Rule(place, steps))
    return {name: _field(tuple(each)) for name, each in rules.items()}


def _field(rules: tuple[_Rule, ...]) -> StoredField:
    """Return a field whose hint JSON with one of the last names has; all JSON has it if the field is a name itself."""
    if any(len(rule.steps) == 1 for rule in rules):
        return StoredField(rules, (), re.compile(b""))
    names = sorted({rule.steps[-1][0] for rule in rules})
    hint = re.compile(f'"(?:{"|".join(map("_?".join, names))})"|{_ESCAPED}'.encode(), re.IGNORECASE)
    return StoredField(rules, tuple(f'"{name}"'.encode() for name in names), hint)


_ASKED = {api: _fields(places) for api, places in ASKED.items()}
_ANSWERED = {api: _fields(places) for api, places in ANSWERED.items()}
