"""Blanks out the words of a refusal that stood in the request, before any rule reads the refusal.

A vendor that refuses a value quotes the value. The value may be any sentence, even one by which a refusal is
recognised: 400 "Invalid value: 'insufficient_quota'. Supported values are: …" quotes a client's word, and says nothing
about the account. On the other hand, the vendor's own sentence may stand in a prompt. So a quote is recognised by how
the message presents it: in quotes, or after a colon, ``got`` or ``received``; or because the quote is a whole name or
value of the request. Only letters and digits are compared, so escapes do not matter. A name of one word is not blanked
out, unless it is the refused value, or the message presents the name as a tool's and the request has such a tool.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from providers.dialects import DIALECTS
from providers.refusals import (
    LARGEST_REQUEST_BYTES,
    MOST_VALUES,
    UNREADABLE,
    Content,
    TooCostlyError,
    UpstreamError,
    decoded,
    runs,
    squeezed,
)

_EXAMINED_CHARS: Final = 4200  # of a message: as many as rules read
_DECODED_TIMES: Final = 3
_MOST_QUOTES: Final = 200  # in a message: a message with more was written to be slow
_AROUND_CHARS: Final = 64  # of text around a quote, which says what the quote is
_BLANK: Final = "x"
_END: Final = "\0"  # of a text of the request
_LEAST_PARTS: Final = 4  # of a word with hyphens that is taken for a sentence
_LEAST_WORDS: Final = 3  # of a value that the message neither presents as a value nor calls wrong
_WITHOUT_SPACES: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # so a sentence may be one word
# Fields whose texts are content: no vendor refuses a word in these as a value.
_FORMATS: Final = tuple(dialect.requests for dialect in DIALECTS.values())
_CONTENT: Final = frozenset(
    {
        *(each.prompt for each in _FORMATS),
        *(name for each in _FORMATS for name in (*each.tools.offered, *each.json_formats, *each.essential)),
        *("documents", "input", "instructions", "prompt", "query", "system", "systemInstruction"),
    }
) - {"output_config"}  # which has the effort, too
_QUOTED: Final = re.compile(r"(?:(?<![^\W_])|(?<![^\W_])[bru])(['\"`])(.*?)(?:\1(?![^\W_])|\Z)", re.DOTALL)
_PRESENTS: Final = re.compile(
    r"(?:[`'\"\u201c\u2018\u00ab:=(\[{<>][^\w]{0,64}"
    r"|\b(?:got|received|values?|given|provided|effort|level|tier|function|tool|name|named|type|role|model|user)\W{0,64})$",
    re.IGNORECASE,
)
# Quotes without marks, behind a colon, and often cut: "Failed to parse near: …", "Cannot take this request: …"
_OF_TEXT: Final = (
    r"(?:near|around|text|contents?|prompt|body|(?<!bad )(?<!invalid )request|rendering|parsing|document|string)"
)
_GIVEN: Final = rf"\b(?:(?:got|received|value|given|provided)\b|input(?:_value)?['\"]?[:=]|{_OF_TEXT}['\"]?\s?[:=])"
_GIVES, _GIVEN_ANYWHERE = re.compile(rf"{_GIVEN}\W{{0,64}}$", re.IGNORECASE), re.compile(_GIVEN, re.IGNORECASE)
_WORDS: Final = re.compile(r"\W{0,64}(?:['\"`][\w.-]{1,100}['\"`][^\w'\"`]{0,64}){2,}")  # several, each in quotes
# The vendor's own words follow, even in an error that a proxy quotes.
_SAYS: Final = re.compile(
    r"(\w{0,64}(?:error|exception|message|msg|detail|raw))['\"]?\s{0,64}[:=]\s{0,64}['\"]?$", re.IGNORECASE
)
_REFUSED: Final = re.compile(
    r"\W{0,2} ?(?:(?:is|was|are) (?:not|an? |in|un)|isn.t |does not exist|not in )", re.IGNORECASE
)
# Text before a value of one word that presents the word as a value; not as a field's name, or as the first accepted
# value.
_OF_VALUE: Final = re.compile(r"(?:\b(?:got|received|input|value|given|variant)\W{1,3}|[:=] ?)$", re.IGNORECASE)
_OF_NAMES: Final = re.compile(
    r"\b(?:parameter|param|argument|field|property|key|option|attribute|supplied|object|are|one of|levels)"
    r"(?:s|\(s\))?(?: in object| supplied)?: ?$",
    re.IGNORECASE,
)
# Text around a word that presents the word as a tool's name. Without quotes a word counts only if it is written, or
# introduced, like a name: "function tools" are any tools.
_OPEN, _CLOSE = r"(?P<open>['\"`\u2018\u201c\u00ab]?)", r"(?P<close>['\"`\u2019\u201d\u00bb]?)"
_TOOL: Final = r"(?<![\w.])(?:tool|function)"
_WORD: Final = rf"{_OPEN}(?P<word>(?<![\w.-])[\w.-]{{0,99}}\w){_CLOSE}(?![\w-])"
_TOOL_NAMED: Final = (
    re.compile(
        rf"(?:{_TOOL}s?(?:[ _](?:names?|choice|calls?(?: to)?|named|called|with (?:the )?name))?|(?:\w|\])\.name)"
        rf"['\"`]?(?:[:=] ?| )\[?{_WORD}",
        re.IGNORECASE,
    ),
    re.compile(
        rf"{_WORD} (?:(?:is|was) not an? (?:\w{{1,20}} ){{0,2}}"
        r"|(?:is |was )?not (?:found )?(?:among|in|one of) (?:the )?(?:\w{1,20} )?['\"`]?"
        r"|(?=(?:tool|function)\b(?! (?:call|use|choice))))(?:tool|function)s?\b",
        re.IGNORECASE,
    ),
)
_IS_WRITTEN_AS_NAME: Final = re.compile(r"_|[a-z][A-Z]|\d|\w[.-]\w")
_CALLS_A_NAME: Final = re.compile(r"[:=]|name|called", re.IGNORECASE)
_SAID: Final = frozenset({"anthropic_beta", "model"})  # fields of names
# Objects whose names are the client's; and fields whose values are the API's.
OF_CLIENTS: Final = frozenset(
    {
        "$defs",
        "args",
        "client_metadata",
        "definitions",
        "input",
        "labels",
        "metadata",
        "patternProperties",
        "properties",
    }
)
_ENUMERATED: Final = frozenset({"include", "role", "type"})
_LONGEST_NAME: Final = 100  # characters, as many as rules take for a field's
_NAMES_TOOLS: Final = frozenset({"name", "allowedFunctionNames"})


class _Request(NamedTuple):
    """The texts of a request, reduced to their letters and digits."""

    texts: Content
    whole: frozenset[bytes]  # names and values of several words
    names: frozenset[bytes]  # the names
    values: frozenset[bytes]  # the values of fields that are no content
    words: frozenset[str]  # values of one word, of fields that are no content
    tools: frozenset[str]  # what may be the names of tools
    said: frozenset[tuple[str, bytes]]  # with the names below which vendors report errors


def mark(error: UpstreamError, own: "VendorsWords") -> None:
    """Have rules read only the vendor's ``own`` words of ``error``; the first call decides.

    The kind of an error that came within an answer is decided again by the words that are left.
    """
    if error.is_marked:
        return
    error.said = own(error.said)
    if (judge := error.judge) is not None:
        error.judge = None
        judge(error, own)


class VendorsWords:
    """Returns a message without the quotes of ``requests``; "" if these are too large, or no longer in memory.

    ``requests``: the fields of the request in each form; None: no longer in memory. ``texts``: more of the content.
    Both are read once, and only when there is a message.
    """

    __slots__ = ("_request", "_requests", "_said", "_texts")

    def __init__(self, *requests: Mapping[str, msgspec.Raw] | None, texts: Iterable[str] = ()) -> None:
        self._requests, self._texts = requests, texts
        self._request: _Request | None = None
        self._said: dict[str, str] = {}  # by message: most are asked for twice

    def __call__(self, message: str) -> str:
        """Return a ``message`` without the quotes."""
        if not self._said:
            forms = [fields for fields in self._requests if fields is not None]
            self._request = _read(forms, self._texts) if len(forms) == len(self._requests) else None
        words = self._said.get(message)
        if words is None:
            words = self._said[message] = "" if self._request is None else _vendors_words(message, self._request)
        return words

    def unrepeated(self, message: str) -> str:
        """Return a ``message`` without all that stands in the request, however the message presents it.

        For what holds for others, too: a prompt may be echoed as if the vendor had said it ("Could not process …").
        """
        self(message)
        return "" if self._request is None else _in_forms(message, self._request, _all_repeats)


def _vendors_words(message: str, request: _Request) -> str:
    return _in_forms(message, request, _quotes)


def _in_forms(message: str, request: _Request, find: Callable[[str, _Request], list[tuple[int, int]]]) -> str:
    """Return ``message``, or the first of its decoded forms in which anything is found, with that blanked out."""
    message = message[:_EXAMINED_CHARS]
    forms = [message]
    while len(forms) <= _DECODED_TIMES and (form := decoded(forms[-1])) != forms[-1]:
        forms.append(form)
    try:
        for form in reversed(forms):
            if (blanked := _without(form, find(form, request))) != form:
                return blanked
    except TooCostlyError:
        return ""
    return message


def _read(requests: Sequence[Mapping[str, msgspec.Raw]], texts: Iterable[str]) -> _Request | None:
    raws = {(name, bytes(raw)) for fields in requests for name, raw in fields.items()}
    more = list(texts)
    size = sum(len(raw) for _, raw in raws) + sum(map(len, more))
    if size > LARGEST_REQUEST_BYTES or sum(raw.count(b",") for _, raw in raws) > MOST_VALUES:
        return None
    names, values, words, tools, pairs = set[str](), list(more), set[str](), set[str](), set[tuple[str, str]]()
    for name, raw in raws:
        names.add(name)
        try:
            value = msgspec.json.decode(raw)
        except UNREADABLE:
            values.append(raw.decode(errors="replace"))
            continue
        begin = len(values)
        _gather(value, names, values, tools, pairs)
        if name in _SAID and not any(re.search(r"\s", each) for each in values[begin:]):
            del values[begin:]  # names of vendors
        elif name not in _CONTENT:
            words.update(each for each in values[begin:] if len(each) <= _EXAMINED_CHARS)
    own, letters_of_names = _letters([*values]), _letters([*names])
    return _Request(
        Content(b"\0".join((*own, *letters_of_names))),
        frozenset(_several(values)) | frozenset(_several(names)),
        frozenset(_several(names)),
        frozenset(_several(words)),
        frozenset(words),
        frozenset(tools),
        frozenset((name, squeezed(each)) for name, each in pairs),
    )


def _gather(value: Any, names: set[str], values: list[str], tools: set[str], pairs: set[tuple[str, str]]) -> None:
    match value:
        case str():
            values.append(value)
        case list():
            for each in value:
                _gather(each, names, values, tools, pairs)
        case dict():
            for name, each in value.items():
                names.add(name)
                if isinstance(each, str) and _SAYS.search(f"{name}:") is not None:
                    pairs.add((name.lower(), each))
                if name in _NAMES_TOOLS:
                    tools.update(text for text in (each if isinstance(each, list) else [each]) if isinstance(text, str))
                _gather(each, names, values, tools, pairs)


def named_by_client(fields: Mapping[str, msgspec.Raw]) -> frozenset[str]:
    """Return the words by which a request's client has named something: properties, tools, metadata, and values.

    A refusal may mean these by the name of a field.
    """
    names = set[str]()
    for name, raw in fields.items():
        try:
            _gather_named(msgspec.json.decode(raw), name, names)
        except UNREADABLE:
            continue
    return frozenset(names)


def _gather_named(value: Any, name: str, names: set[str]) -> None:
    match value:
        case str() if name not in _ENUMERATED and len(value) <= _LONGEST_NAME:
            names.add(value)
        case list():
            for each in value:
                _gather_named(each, name, names)
        case dict():
            if name in OF_CLIENTS:
                names.update(value)
            for each, inner in value.items():
                _gather_named(inner, each, names)


def _letters(texts: Sequence[str]) -> list[bytes]:
    """Return the letters and digits of texts, undecoded and decoded."""
    joined = _END.join(text.replace(_END, " ") for text in texts)
    forms = dict.fromkeys((joined, decoded(joined)))
    return [each for form in forms for each in squeezed(form, keep=b"\0").split(b"\0")]


def _several(texts: Collection[str]) -> Iterator[bytes]:
    """Yield the letters of the texts that may be in a message, and have more than one word."""
    short = [text for text in texts if len(text) <= _EXAMINED_CHARS and _is_sentence(text)]
    yield from filter(None, _letters(short))


def _is_sentence(text: str) -> bool:
    text = text.strip()
    if re.search(r"\s", text) is not None or text.count("-") >= _LEAST_PARTS - 1:
        return True
    return not text.isascii() and len(_WITHOUT_SPACES.findall(text)) >= _LEAST_PARTS


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return ``text`` with each of the ``spans`` replaced by as many letters that form no words."""
    for begin, end in spans:
        text = text[:begin] + _BLANK * (end - begin) + text[end:]
    return text


def _letters_of(text: str) -> tuple[bytes, list[int]]:
    """Return the letters and digits of a text, and where in the text each stands."""
    letters, places = bytearray(), list[int]()
    for place, character in enumerate(text):
        folded = squeezed(character)
        letters += folded
        places += [place] * len(folded)
    return bytes(letters), places


def _all_repeats(text: str, request: _Request) -> list[tuple[int, int]]:
    letters, places = _letters_of(text)
    return [(places[begin], places[end - 1] + 1) for begin, end in runs(letters, places, request.texts)]


def _quotes(text: str, request: _Request) -> list[tuple[int, int]]:
    remaining, places = _letters_of(text)
    return [
        *_in_quotes(text, request),
        *_whole(text, remaining, places, request),
        *_tools(text, request),
        *(
            (places[begin], places[end - 1] + 1)
            # Searching a long prompt costs time: only where something may be found.
            for begin, end in (
                runs(remaining, places, request.texts) if _GIVEN_ANYWHERE.search(text) is not None else ()
            )
            if _GIVES.search(text[max(0, places[begin] - _AROUND_CHARS) : places[begin]]) is not None
        ),
    ]


def _in_quotes(text: str, request: _Request) -> Iterator[tuple[int, int]]:
    at = count = 0
    while (match := _QUOTED.search(text, at)) is not None:
        at, count = match.end(), count + 1
        if count > _MOST_QUOTES:
            raise TooCostlyError
        inner, (begin, end) = match[2], match.span(2)
        letters, before = squeezed(inner), text[max(0, match.start(1) - _AROUND_CHARS) : match.start(1)]
        if not letters or _WORDS.fullmatch(inner) is not None:
            continue
        if not _is_sentence(inner):
            follows = text.startswith(" does not support", match.end())
            is_value = _OF_VALUE.search(before) is not None and _OF_NAMES.search(before) is None
            if inner in request.words and is_value and not follows:
                yield begin, end
        elif _is_vendors(before, letters, request):
            at = begin  # the vendor's own words may have quotes
        elif letters in request.texts:
            yield begin, end
        else:
            places = [at for at, character in enumerate(inner) for _ in squeezed(character)]
            for first, last in runs(letters, places, request.texts):
                yield begin + places[first], begin + places[last - 1] + 1


def _tools(text: str, request: _Request) -> Iterator[tuple[int, int]]:
    """Yield where tools of the request are named."""
    if request.tools:
        for pattern in _TOOL_NAMED:
            for match in pattern.finditer(text):
                word, before = match["word"], text[match.start() : match.start("word")]
                is_name = (match["open"] and match["close"]) or _IS_WRITTEN_AS_NAME.search(word) is not None
                if word in request.tools and (is_name or _CALLS_A_NAME.search(before) is not None):
                    yield match.span("word")


def _whole(text: str, letters: bytes, places: Sequence[int], request: _Request) -> Iterator[tuple[int, int]]:
    """Yield where names and values of several words stand from end to end."""
    count = 0
    for value in request.whole:
        at = letters.find(value)
        while at >= 0:
            count += 1
            if count > _MOST_QUOTES:
                raise TooCostlyError
            end = at + len(value)
            if _may_be(value, text, (places[at], places[end - 1] + 1), request):
                yield places[at], places[end - 1] + 1
            at = letters.find(value, at + 1)


def _may_be(value: bytes, text: str, span: tuple[int, int], request: _Request) -> bool:
    begin, end = span
    before, after = text[max(0, begin - _AROUND_CHARS) : begin], text[end : end + _AROUND_CHARS]
    if before[-1:].isalnum() or after[:1].isalnum() or _is_vendors(before, value, request):
        return False
    if not any(map(str.isalnum, before + after)):
        return False  # nothing is said about the word
    if _PRESENTS.search(before) is not None:
        return True
    is_refused = _REFUSED.match(after) is not None
    if len(re.split(r"[\s-]+", text[begin:end])) < _LEAST_WORDS:
        return is_refused and value in request.values
    return value in request.names or value in request.values or is_refused


def _is_vendors(before: str, letters: bytes, request: _Request) -> bool:
    """Whether the text after ``before`` is the vendor's: below a name that vendors use, and the request does not."""
    match = _SAYS.search(before)
    return match is not None and (match[1].lower(), letters) not in request.said
