"""Which parts of requests and answers name what a provider stores under the operator's key: a table of all APIs.

One walk over JSON, which the table leads, finds these names.
"""

import itertools
import re
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
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
    SERVER = "MCP server"  # named by its URL; not stored, but the provider calls the server
    CONNECTOR = "connector"  # the same, named by its id


class NamedId(msgspec.Struct, frozen=True):
    """A name in a request or answer."""

    field: str  # input[0].content[1].file_id
    kind: StoredKind
    value: str


class NamePlace(msgspec.Struct, frozen=True):
    """Where names are.

    ``path``: field names with dots between them. ``name[]`` stands for the elements of a list (or for the value itself
    if it is no list), ``*`` for every field, ``**`` for an object and all objects within, except those that ``OPAQUE``
    lists. Case and underscores of fields do not matter: Google's and Go's JSON readers ignore them too.
    """

    path: str
    kind: StoredKind
    when: Callable[[Mapping[str, Any]], bool] | None = None  # of the object with the name; None: always
    form: re.Pattern[str] | None = (
        None  # how a name begins, after spaces; other values name nothing. None: every value is a name
    )


def _is_reference(item: Mapping[str, Any]) -> bool:
    """Whether an item of the Responses API stands for a stored item: its type says so, or it has only an id."""
    kind = item.get("type")
    if kind == "image_generation_call":  # a further edit of the picture
        return not item.get("result")
    return kind == "item_reference" or (kind is None and "role" not in item)


_K = StoredKind
# Files by URL that a provider reads with the operator's rights, and not as anybody could read them.
_PRIVATE_URL = re.compile(
    r"(?:files/|(?!https?:|data:)[a-z][a-z0-9+.-]{0,64}:"
    r"|https?:[/\\]{0,64}[^/\\?#]{0,256}\b(?:generativelanguage|[a-z0-9-]{0,64}aiplatform)\.googleapis\.com)",
    re.IGNORECASE,
)
_OWN_SKILL = re.compile("skill_")  # vendors' own skills are everybody's


def _form(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_ADDRESS = _form(r"(?:https?|wss?):")
_CLOUD = _form(
    r"(?:(?:gs|s3|abfss?|wasbs?):|files/\w"
    r"|https?://(?:generativelanguage|[a-z0-9-]{0,64}aiplatform)\.googleapis\.com)"
)
# Names in a tool, wherever a list of tools is: beside a prompt, in the prompt's items, in a namespace, in another API's
# request.
_OF_A_TOOL = (
    NamePlace("vector_store_ids[]", _K.STORE),
    NamePlace("container", _K.CONTAINER),
    NamePlace("container.file_ids[]", _K.FILE),
    NamePlace("container.skills[].skill_id", _K.SKILL, form=_OWN_SKILL),
    NamePlace("environment.container_id", _K.CONTAINER),
    NamePlace("environment.file_ids[]", _K.FILE),
    NamePlace("environment.skills[].skill_id", _K.SKILL, form=_OWN_SKILL),
    NamePlace("file_ids[]", _K.FILE),
    NamePlace("input_image_mask.file_id", _K.FILE),
    NamePlace("server_url", _K.SERVER),
    NamePlace("url", _K.SERVER, form=_ADDRESS),
    NamePlace("connector_id", _K.CONNECTOR),
    NamePlace("tunnel_id", _K.CONNECTOR),
)
# Names at all other places: only fields with these names, and values in the form of such a name.
_ELSEWHERE = (
    NamePlace("file_id[]", _K.FILE, form=_form(r"file[-_]\w|assistant-\w")),
    NamePlace("file_ids[]", _K.FILE, form=_form(r"file[-_]\w|assistant-\w")),
    NamePlace("file_uri[]", _K.FILE, form=_CLOUD),
    NamePlace("file_url[]", _K.FILE, form=_CLOUD),
    NamePlace("image_url[]", _K.FILE, form=_CLOUD),
    NamePlace("image_url.url", _K.FILE, form=_CLOUD),
    NamePlace("vector_store_id[]", _K.STORE, form=_form(r"vs_\w")),
    NamePlace("vector_store_ids[]", _K.STORE, form=_form(r"vs_\w")),
    NamePlace("file_search_store_names[]", _K.STORE, form=_form(r"fileSearchStores/\w")),
    NamePlace("container[]", _K.CONTAINER, form=_form(r"(?:cntr|container)_\w")),
    NamePlace("container_id[]", _K.CONTAINER, form=_form(r"(?:cntr|container)_\w")),
    NamePlace("skill_id[]", _K.SKILL, form=_form(r"skill_\w")),
    NamePlace("prompt_id[]", _K.PROMPT, form=_form(r"pmpt_\w")),
    NamePlace("response_id[]", _K.RESPONSE, form=_form(r"resp_\w")),
    NamePlace("previous_response_id[]", _K.RESPONSE, form=_form(r"resp_\w")),
    NamePlace("conversation[]", _K.CONVERSATION, form=_form(r"conv_\w")),
    NamePlace("conversation.id", _K.CONVERSATION, form=_form(r"conv_\w")),
    NamePlace("conversation_id[]", _K.CONVERSATION, form=_form(r"conv_\w")),
    NamePlace("cached_content[]", _K.CACHE, form=_form(r"cachedContents/\w|projects/\w")),
    NamePlace("server_url[]", _K.SERVER, form=_ADDRESS),
    NamePlace("mcp_servers[].url", _K.SERVER, form=_ADDRESS),
    NamePlace("connector_id[]", _K.CONNECTOR, form=_form(r"connector_\w")),
    NamePlace("tunnel_id[]", _K.CONNECTOR, form=_form(r"tunnel_\w")),
)


def _within(path: str, places: Iterable[NamePlace]) -> tuple[NamePlace, ...]:
    """Return the ``places``, moved below ``path``."""
    return tuple(msgspec.structs.replace(place, path=f"{path}.{place.path}") for place in places)


# Of every API. Both are looked for even where ``OPAQUE`` has the name of a prompt.
_ANYWHERE = tuple(
    place
    for path in ("**", "input[].**", "messages[].input[].**")
    for place in (*_within(f"{path}.tools[]", _OF_A_TOOL), *_within(path, _ELSEWHERE))
)
_OPENAIS_STATE = (
    NamePlace("conversation", _K.CONVERSATION),
    NamePlace("conversation.id", _K.CONVERSATION),
    NamePlace("prompt.id", _K.PROMPT),
)
_OF_ITEMS = (
    NamePlace("id", _K.ITEM, _is_reference),
    NamePlace("approval_request_id", _K.ITEM),
    NamePlace("**.file_id", _K.FILE),
    NamePlace("**.image_url", _K.FILE, form=_PRIVATE_URL),
    NamePlace("**.file_url", _K.FILE, form=_PRIVATE_URL),
    NamePlace("**.container_id", _K.CONTAINER),
    NamePlace("output[].file_id", _K.FILE),  # of parts and pictures; all else in a function's answer is the client's
    NamePlace("output[].image_url", _K.FILE, form=_PRIVATE_URL),
    NamePlace("output[].file_url", _K.FILE, form=_PRIVATE_URL),
)
_GOOGLES = (
    NamePlace("cachedContent", _K.CACHE),
    NamePlace("contents[].**.fileUri", _K.FILE, form=_PRIVATE_URL),
    NamePlace("systemInstruction.**.fileUri", _K.FILE, form=_PRIVATE_URL),
    NamePlace("tools[].fileSearch.fileSearchStoreNames[]", _K.STORE),
    NamePlace("tools[].retrieval.vertexAiSearch.datastore", _K.STORE),
    NamePlace("tools[].retrieval.vertexAiSearch.engine", _K.STORE),
    NamePlace("tools[].retrieval.vertexAiSearch.dataStoreSpecs[].dataStore", _K.STORE),
    NamePlace("tools[].retrieval.vertexRagStore.ragCorpora[]", _K.STORE),
    NamePlace("tools[].retrieval.vertexRagStore.ragResources[].ragCorpus", _K.STORE),
    NamePlace("tools[].retrieval.externalApi.endpoint", _K.SERVER),
    NamePlace("tools[].mcpServers[].streamableHttpTransport.url", _K.SERVER),
)

# By API (a relayed API: by the path at the provider): what else a request may name.
ASKED: Mapping[str, tuple[NamePlace, ...]] = {
    "chat": (
        *_OPENAIS_STATE,
        NamePlace("previous_response_id", _K.RESPONSE),
        NamePlace("messages[].**.file_id", _K.FILE),
        NamePlace("messages[].**.url", _K.FILE, form=_PRIVATE_URL),
        *_within("messages[].input[]", _OF_ITEMS),
        NamePlace("messages[].audio.id", _K.AUDIO),
        NamePlace("data_sources[].type", _K.SOURCE),  # Azure reads these under the operator's identity
    ),
    "responses": (
        *_OPENAIS_STATE,
        NamePlace("previous_response_id", _K.RESPONSE),  # also of requests that count tokens or shorten a conversation
        NamePlace("prompt.variables.*.file_id", _K.FILE),
        NamePlace("prompt.variables.*.image_url", _K.FILE, form=_PRIVATE_URL),
        NamePlace("prompt.variables.*.file_url", _K.FILE, form=_PRIVATE_URL),
        NamePlace("prompt_cache_options.comparison_response_id", _K.RESPONSE),
        *_within("input[]", _OF_ITEMS),
    ),
    "messages": (
        NamePlace("messages[].**.file_id", _K.FILE),
        NamePlace("messages[].**.url", _K.FILE, form=_PRIVATE_URL),
        NamePlace("container", _K.CONTAINER),
        NamePlace("container.id", _K.CONTAINER),
        NamePlace("container.skills[].skill_id", _K.SKILL, form=_OWN_SKILL),
        NamePlace("mcp_servers[].url", _K.SERVER),
        NamePlace("thread.previous_message_id", _K.MESSAGE),
        NamePlace("diagnostics.previous_message_id", _K.MESSAGE),
        NamePlace("fallback_credit_token", _K.CREDIT),
        NamePlace("fallback_credit_token.token", _K.CREDIT),
    ),
    # The second is the request whose tokens are counted.
    "gemini": (*_GOOGLES, *_within("generateContentRequest", _GOOGLES)),
    "interactions": (
        NamePlace("previous_interaction_id", _K.RESPONSE),
        NamePlace("cached_content", _K.CACHE),
        NamePlace("environment", _K.CONTAINER),
        NamePlace("environment.environment_id", _K.CONTAINER),
        NamePlace("input[].**.uri", _K.FILE, form=_PRIVATE_URL),
        NamePlace("tools[].file_search_store_names[]", _K.STORE),
        NamePlace("tools[].vertex_ai_search_config.datastores[]", _K.STORE),
        NamePlace("tools[].vertex_ai_search_config.engine", _K.STORE),
        NamePlace("tools[].rag_store_config.rag_resources[].rag_corpus", _K.STORE),
    ),
    "images/edits": (
        NamePlace("image[].file_id", _K.FILE),
        NamePlace("images[].file_id", _K.FILE),
        NamePlace("mask[].file_id", _K.FILE),
    ),
    "audio/speech": (NamePlace("voice.id", _K.VOICE),),
}

# Names of fields beside the prompt and the tools that may name something stored. The rest of a text request needs no
# search.
NAMES_STORED = frozenset(
    {"cachedContent", "container", "conversation", "data_sources", "mcp_servers", "previous_response_id"}
    | {"cached_content", "environment", "previous_interaction_id"}
    | {"diagnostics", "fallback_credit_token", "prompt_cache_options", "systemInstruction", "thread"}
)
# What one organisation alone has, and no operator shares: looked up even if there are no clients. A name beside a
# container may be unknown as well.
HELD = frozenset({StoredKind.CONTAINER, StoredKind.CREDIT, StoredKind.MESSAGE})
HOLDING = frozenset({"container", "diagnostics", "fallback_credit_token", "thread"})  # a request's fields with these
KEEPS_NONE = "keeps no conversation"  # why a request that goes on with a conversation does not fit here
# Fields and headers of a request whose answer names something that the client may name later.
GIVES_STORED = HOLDING | {"audio"}
GIVING_HEADERS: Mapping[str, str] = {"anthropic-beta": "fallback-credit"}  # and a part of the header's value

# By API: the names that an answer, or an event of a stream, gives the client.
_RESPONSE = (
    ("id", _K.RESPONSE),
    ("conversation.id", _K.CONVERSATION),
    *((f"output[].{path}", kind) for path, kind in (("id", _K.ITEM), ("container_id", _K.CONTAINER))),
    ("output[].environment.container_id", _K.CONTAINER),
    ("output[].content[].annotations[].file_id", _K.FILE),
    ("output[].content[].annotations[].container_id", _K.CONTAINER),
    ("output[].results[].file_id", _K.FILE),
)
ANSWERED: Mapping[str, tuple[NamePlace, ...]] = {
    "chat": (NamePlace("choices[].message.audio.id", _K.AUDIO), NamePlace("choices[].delta.audio.id", _K.AUDIO)),
    "responses": (
        *(
            NamePlace(path, kind, lambda answer: "type" not in answer) for path, kind in _RESPONSE[:1]
        ),  # events have a ``response``
        *(NamePlace(path, kind) for path, kind in _RESPONSE[1:]),
        *(NamePlace(f"response.{path}", kind) for path, kind in _RESPONSE),
        *(NamePlace(path.replace("output[]", "item"), kind) for path, kind in _RESPONSE if path.startswith("output[]")),
    ),
    "messages": (
        NamePlace("id", _K.MESSAGE, lambda answer: answer.get("type") == "message"),
        NamePlace("message.id", _K.MESSAGE),
        *(NamePlace(f"{before}container.id", _K.CONTAINER) for before in ("", "message.", "delta.")),
        *(NamePlace(f"{before}stop_details.fallback_credit_token", _K.CREDIT) for before in ("", "message.", "delta.")),
        NamePlace("content[].content.content[].file_id", _K.FILE),
        NamePlace("content_block.content.content[].file_id", _K.FILE),
    ),
    "interactions": (
        NamePlace("id", _K.RESPONSE, lambda answer: "status" in answer),
        NamePlace("environment_id", _K.CONTAINER),
        NamePlace("interaction.id", _K.RESPONSE),
        NamePlace("interaction.environment_id", _K.CONTAINER),
    ),
}

# Fields whose values are the client's own data, whatever their names: arguments and outputs of calls, schemas, labels.
OPAQUE = frozenset(
    {"args", "arguments", "attributes", "input", "metadata", "output", "parameters", "response", "result"}
    | {"default", "enum", "examples", "properties"}
)
_SCHEMA = "schema"  # how the names of further such fields end
_SLICE_BYTES = 2**17  # of JSON, searched or otherwise read before a pause: one to three milliseconds
_STRADDLING_BYTES = 256  # a name that begins in a slice ends within so many bytes
_ELEMENT, _DECODED = 50, 2_500  # the cost of an element, and of an element that is decoded, in searched bytes
_VALUES_AT_ONCE = 1_000  # looked at before a pause
_LONGEST_KEY = 100  # characters; longer ones are no names of fields
_LONGEST_PATH = 1_000  # characters of a path in a message
_LOWER = bytes(range(256)).lower()
_ESCAPED = r"\\u00[4-7]"  # a letter or underscore of a name may be written so: ``\u005f``


class _Node(msgspec.Struct, eq=False):
    """What a table says about one field: what is named there, and what is below."""

    is_list: bool = False  # the elements of the field are meant
    is_deep: bool = False  # the field is an object, and all objects within are meant
    places: list[NamePlace] = []
    below: dict[str, "_Node"] = {}


_Nodes = tuple[_Node, ...]  # of one field: by its own name, by ``*``, and by each ``**`` around it


def _tree(places: Iterable[NamePlace]) -> _Nodes:
    root = _Node()
    for place in places:
        node = root
        for part in place.path.split("."):
            node = node.below.setdefault(plain(part.removesuffix("[]")), _Node(is_deep=part == "**"))
            node.is_list = node.is_list or part.endswith("[]")
        node.places.append(place)
    return _opened(root)


def _opened(node: _Node) -> _Nodes:
    return (node, node.below["**"]) if "**" in node.below else (node,)


@lru_cache(maxsize=4096)
def _below(nodes: _Nodes, key: str) -> _Nodes:
    """Return what a table says about the field ``key`` of an object; ``nodes``: what it says about the object."""
    name, found = plain(key), list[_Node]()
    for node in nodes:
        for each in (name, "*"):
            if each in node.below:
                found += _opened(node.below[each])
        if node.is_deep and name not in OPAQUE and not name.endswith(_SCHEMA):
            found.append(node)
    return tuple(dict.fromkeys(found))


def _field_of(nodes: _Nodes, key: str) -> _Nodes:
    return _below(nodes, key if len(key) <= _LONGEST_KEY else "")


_At = tuple[Any, str | int] | None  # a path: what comes before, and the last step


def _walked(nodes: _Nodes, value: object, at: _At) -> Iterator[NamedId | None]:
    """Yield what ``value`` names; None wherever work may pause. ``nodes``: what a table says about ``value``."""
    left: list[tuple[_Nodes, object, _At, Mapping[str, Any]]] = [(nodes, value, at, {})]
    for count in itertools.count(1):
        if not left:
            return
        if count % _VALUES_AT_ONCE == 0:
            yield None
        nodes, value, at, holder = left.pop()
        if isinstance(value, dict):
            fields = [(_field_of(nodes, key), each, (at, key), value) for key, each in value.items()]
            left += [field for field in reversed(fields) if field[0]]
        elif isinstance(value, list):
            if lists := tuple(node for node in nodes if node.is_list or node.is_deep):
                left += [(lists, value[n], (at, n), holder) for n in range(len(value) - 1, -1, -1)]
        elif (named := _named(nodes, value, at, holder)) is not None:
            yield named


def _named(nodes: _Nodes, value: object, at: _At, holder: Mapping[str, Any]) -> NamedId | None:
    """Return what a value that is no object or list names; None: another form of the field, or everybody's name."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return None
    name = str(value)
    for node in nodes:
        for place in node.places:
            if (place.form is None or place.form.match(name.lstrip())) and (place.when is None or place.when(holder)):
                return NamedId(_path(at), place.kind, name)
    return None


def _path(at: _At) -> str:
    """Return a path as messages have it."""
    steps = []
    while at is not None:
        at, step = at
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step[:_LONGEST_KEY]}")
    return "".join(reversed(steps))[1 : _LONGEST_PATH + 1]


class StoredField(msgspec.Struct, frozen=True):
    """What one field at the top level of a body, or of an event, may name."""

    nodes: _Nodes
    names: tuple[bytes, ...]  # the last fields of the places, plain and quoted; none if all JSON may be a name
    hint: re.Pattern[bytes]  # matches JSON wherever there may be a name

    def hinted(self, raw: msgspec.Raw) -> Generator[None, None, bool]:
        """Return whether the hint is found in JSON; long JSON is searched slice by slice.

        Underscores of long JSON are removed first. Their removal takes a tenth of the pattern's time.
        """
        if not self.nodes:
            return False
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

    def named_in(self, field: str, raw: msgspec.Raw) -> Iterator[NamedId | None]:
        """Yield what the value of ``field`` names; None wherever work may pause. The hint was found in this value.

        Only elements in which the hint is found are decoded.
        """
        at = (None, field)
        if not _ARRAY.match(raw):
            yield from _walked(self.nodes, msgspec.json.decode(raw), at)
            return
        nodes = tuple(node for node in self.nodes if node.is_list or node.is_deep)
        elements, worked = _elements.decode(raw), 0
        yield None
        for index, element in enumerate(elements):
            worked += len(memoryview(element)) + _ELEMENT
            if (yield from self.hinted(element)):
                yield from _walked(nodes, msgspec.json.decode(element), (at, index))
                worked += _DECODED
            if worked > _SLICE_BYTES:
                worked = 0
                yield None


def asked_field(api: str, name: str) -> StoredField:
    """Return what the field ``name``, at the top level of a request of ``api``, may name."""
    return _stored_field(_field_of(_ASKED.get(api, _OTHER), name))


def named_in_answer(api: str, answer: bytes) -> Iterator[NamedId]:
    """Yield what an answer, or the data of one of its events, gives a client to name. None in place of non-objects."""
    nodes = _ANSWERED.get(api)
    if nodes is None or not _hint(nodes).search(answer):
        return
    try:
        said = msgspec.json.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if isinstance(said, dict):
        yield from (named for named in _walked(nodes, said, None) if named is not None)


_ARRAY = re.compile(rb"\s*\[")
_elements = msgspec.json.Decoder(list[msgspec.Raw])


@lru_cache(maxsize=256)
def _stored_field(nodes: _Nodes) -> StoredField:
    is_name = any(node.places for node in nodes)
    names = () if is_name else tuple(f'"{name}"'.encode() for name in _last_names(nodes))
    return StoredField(nodes, names, re.compile(b"") if is_name else _hint(nodes))


@lru_cache(maxsize=256)
def _hint(nodes: _Nodes) -> re.Pattern[bytes]:
    """Return a pattern of JSON in which there may be a name below ``nodes``."""
    return re.compile(f'"(?:{"|".join(map("_?".join, _last_names(nodes)))})"|{_ESCAPED}'.encode(), re.IGNORECASE)


def _last_names(nodes: _Nodes) -> list[str]:
    """Return the plain names of fields that may be a name, the longest first."""
    found, left = set[str](), [*nodes]
    while left:
        below = left.pop().below
        found |= {name for name, node in below.items() if node.places}
        left += below.values()
    return sorted(found, key=lambda name: (-len(name), name))


def plain(name: str) -> str:
    """Return a field's name without case and underscores."""
    return name.replace("_", "").lower()


_ASKED = {api: _tree((*places, *_ANYWHERE)) for api, places in ASKED.items()}
_OTHER = _tree(_ANYWHERE)
_ANSWERED = {api: _tree(places) for api, places in ANSWERED.items()}
