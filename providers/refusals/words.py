"""Decides which of a provider's words may be kept: an error may quote the prompt, which is neither stored nor logged.

``keep`` is called once for each error of a request, before anybody but the caller may read the error. Texts are
compared by their letters and digits alone, in lower case. So a quote is found whatever signs are between its words, and
also if it was cut, wrapped, escaped (as JSON, in a URL, as HTML, as Python prints it), or encoded in Base64 or
hexadecimal digits.
"""

import html
import re
import string
import sys
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

import msgspec

from providers.refusals.errors import UNREADABLE, UpstreamError, identifier
from providers.refusals.redaction import MASK

REMOVED: Final = "[…]"
_LEAST_WORDS = 4
_LEAST_BYTES = 20  # letters and digits: of 24 bytes of a text, up to four are signs, or they are four words
_EXAMINED_CHARS = 1000  # of a message: far more than is kept
_DECODED_TIMES = 3
_WORD_BYTES = 8  # compared at once
# A request beyond these takes too long to be searched while the event loop waits: code and type are kept.
LARGEST_REQUEST_BYTES = 8 * 1024 * 1024
MOST_VALUES = 100_000
_MOST_SEARCHED_BYTES = 64 * 1024 * 1024  # for one error: some tens of milliseconds

_SIGNS = bytes(each for each in range(128) if chr(each) not in string.ascii_letters + string.digits)
_BYTES = re.compile(r"(?:(?<!\\)\\++x[0-9a-fA-F]{2})+")
_UNITS = re.compile(r"(?:(?<!\\)\\++u[0-9a-fA-F]{4})+")
_ESCAPE = re.compile(r"\\+(?:U([0-9a-fA-F]{8})|([abfnrtv0])|(.?))", re.DOTALL)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{20,}(?:\s+[A-Za-z0-9+/_-]{20,})*(?:\s+[A-Za-z0-9+/_-]+(?==))?={0,2}")
_HEX = re.compile(r"[0-9a-fA-F]{2}(?:[\s:]?[0-9a-fA-F]{2}){19,}")
# Below these fields, names are the client's own words too.
_FREE = frozenset(
    {"metadata", "labels", "properties", "$defs", "definitions", "arguments", "input", "args", "variables"}
)
_NO_CONTENT = frozenset({"model"})


def keep(
    error: UpstreamError,
    requests: Sequence[Mapping[str, msgspec.Raw]] | None,
    *,
    texts: Iterable[str] = (),
    models: Collection[str] = (),
) -> None:
    """Set the words of ``error`` that are kept: those that do not stand in the request too.

    ``requests``: the fields of the request in each form; None: no longer in memory, so only code and type are kept.
    ``texts``: more of the request's content. ``models``: names that stay.
    """
    stored = None
    if error.words is not None and requests is not None and (content := _content(requests, texts)) is not None:
        with suppress(TooCostlyError):
            stored = _kept(error.words[:_EXAMINED_CHARS], error.names, content, models)
    error.keep(stored)


def _kept(words: str, names: Iterable[str], content: "Content", models: Collection[str]) -> str:
    stored = _without(words, content, models)
    if stored == words:
        return " ".join(stored.split())
    stored, shown_names = (
        " ".join(stored.split()),
        ", ".join(name for name in names if _without(name, content, ()) == name),
    )
    return f"{stored} ({shown_names})" if shown_names and stored != REMOVED else shown_names or stored


class TooCostlyError(Exception):
    """A search takes too long while the event loop waits."""


class Content:
    """The letters and digits of a request's texts, and how much of these may still be searched."""

    __slots__ = ("_left", "_letters")

    def __init__(self, letters: bytes) -> None:
        self._letters = letters
        self._left = _MOST_SEARCHED_BYTES

    def __contains__(self, run: object) -> bool:
        self._pay()
        return isinstance(run, bytes) and run in self._letters

    def shared_words(self, letters: bytes) -> set[int]:
        """Return the places in ``letters`` of eight bytes that the content has at a multiple of eight."""
        self._pay()
        places: dict[int, list[int]] = {}
        for at in range(len(letters) - _WORD_BYTES + 1):
            places.setdefault(int.from_bytes(letters[at : at + _WORD_BYTES], sys.byteorder), []).append(at)
        here = memoryview(self._letters[: len(self._letters) & -_WORD_BYTES]).cast("Q")
        return {at for word in places.keys() & here for at in places[word]}

    def _pay(self) -> None:
        self._left -= len(self._letters)
        if self._left < 0:
            raise TooCostlyError


def names_of(error: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the code and type of a provider's error object, if these are short identifiers."""
    identifiers = [identifier(error.get(name)) for name in ("code", "type", "status")]
    return tuple(dict.fromkeys(name for name in identifiers if name is not None))


def _content(requests: Iterable[Mapping[str, msgspec.Raw]], texts: Iterable[str]) -> "Content | None":
    """Return the letters and digits of all texts of a request, plain and decoded; None: the request is too large."""
    content = list(texts)
    raws = {bytes(raw): name in _FREE for each in requests for name, raw in each.items() if name not in _NO_CONTENT}
    if sum(map(len, (*raws, *content))) > LARGEST_REQUEST_BYTES or sum(raw.count(b",") for raw in raws) > MOST_VALUES:
        return None
    for raw, is_free in raws.items():
        try:
            _gather(msgspec.json.decode(raw), content, is_free=is_free)
        except UNREADABLE:
            content.append(raw.decode(errors="replace"))
    text = "\n".join(content)
    plain = decoded(text)
    return Content(squeezed(text if plain == text else f"{text}\n{plain}"))


def _gather(value: Any, content: list[str], *, is_free: bool) -> None:
    match value:
        case str():
            content.append(value)
        case list():
            for each in value:
                _gather(each, content, is_free=is_free)
        case dict():
            for name, each in value.items():
                if is_free:
                    content.append(name)
                _gather(each, content, is_free=is_free or name in _FREE)


def squeezed(text: str, keep: bytes = b"") -> bytes:
    """Return the letters and digits of a text, in lower case, and the signs to ``keep``."""
    signs = _SIGNS.translate(None, keep) if keep else _SIGNS
    return text.casefold().encode("utf-8", "replace").translate(None, signs)


def _without(text: str, content: Content, models: Collection[str]) -> str:
    """Return ``text`` without the parts that are in ``content``; decoded, if only the decoded text has such parts."""
    forms = [text]
    for _ in range(_DECODED_TIMES):
        if (form := decoded(forms[-1])) == forms[-1]:
            break
        forms.append(form)
    for form in reversed(forms):
        if spans := _spans(form, content):
            return _cut(form, spans, models)
    return text


def decoded(text: str) -> str:
    """Undo one escaping of each kind."""
    if "\\" in text:
        text = _BYTES.sub(_of_bytes, text)
        text = _UNITS.sub(_of_units, text)
        text = _ESCAPE.sub(_of_escape, text)
    if "%" in text:
        text = unquote(text)
    if "&" in text:
        with suppress(ValueError):  # a character's number of thousands of digits
            text = html.unescape(text)
    return text if text.isascii() else normalize("NFKC", text)


def _of_bytes(match: re.Match[str]) -> str:
    raw = bytes.fromhex(re.sub(r"(?<!\\)\\++x", "", match[0]))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _of_units(match: re.Match[str]) -> str:
    return bytes.fromhex(re.sub(r"(?<!\\)\\++u", "", match[0])).decode("utf-16-be", "replace")


def _of_escape(match: re.Match[str]) -> str:
    if match[1] is not None:
        number = int(match[1], 16)
        return chr(number) if number < 0x110000 else " "  # noqa: PLR2004 - the end of Unicode
    return " " if match[2] is not None else match[3]


def _spans(text: str, content: Content, depth: int = 0) -> list[tuple[int, int]]:
    """Return the begin and end of each run of ``text`` that is in ``content``, too, sorted."""
    letters, places = bytearray(), []
    for place, character in enumerate(text):
        folded = squeezed(character)
        letters += folded
        places += [place] * len(folded)
    runs_found = runs(bytes(letters), places, content)
    spans = [(places[begin], places[end - 1] + 1) for begin, end in runs_found]
    if depth < _DECODED_TIMES:
        spans += [
            match.span()
            for pattern, decode in ((_BASE64, _from_base64), (_HEX, _from_hex))
            for match in pattern.finditer(text)
            if any(_spans(form, content, depth + 1) for each in decode(match[0]) for form in (each, decoded(each)))
        ]
    return sorted(spans)


def _from_base64(text: str) -> Iterator[str]:
    """Yield the texts that ``text`` may be when decoded; the beginning of ``text`` may be cut off."""
    text = "".join(text.split()).rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    for shift in range(4):
        part = text[shift:]
        with suppress(NotBase64):
            yield b64decode(part[: len(part) & -4]).decode(errors="replace")


def _from_hex(text: str) -> Iterator[str]:
    digits = re.sub(r"[\s:]", "", text)
    yield bytes.fromhex(digits).decode(errors="replace")
    yield bytes.fromhex(digits[1:-1]).decode(errors="replace")


def runs(letters: bytes, places: list[int], content: Content) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each run in ``letters`` that is long enough, and stands in ``content``.

    ``places`` are those of the letters in the text, where a gap separates words.
    """
    starts = [at for at in range(len(letters)) if at == 0 or places[at] - places[at - 1] > 1]
    ends = dict(zip(starts, [*starts[_LEAST_WORDS:], len(letters)], strict=False))  # of so many words
    shared = content.shared_words(letters)
    after = 0
    for at in range(len(letters)):
        if at < after:
            continue
        least = _LEAST_BYTES
        if at in ends and ends[at] - at < least:
            least = ends[at] - at
        if at + least > len(letters):
            continue
        # Of fifteen bytes or more that are in the content, some eight begin there at a multiple of eight.
        if least >= 2 * _WORD_BYTES - 1 and shared.isdisjoint(range(at, at + _WORD_BYTES)):
            continue
        if letters[at : at + least] not in content:
            continue
        end = _longest(letters, at, at + least, content)
        begin = at
        while begin > after and letters[begin - 1 : end] in content:
            begin -= 1
        yield begin, end
        after = end


def _longest(letters: bytes, begin: int, end: int, content: Content) -> int:
    """Return the end of the longest run from ``begin`` that is in ``content``; the run up to ``end`` is."""
    beyond = len(letters) + 1
    while end + 1 < beyond:
        middle = (end + beyond) // 2
        if letters[begin:middle] in content:
            end = middle
        else:
            beyond = middle
    return end


def _cut(text: str, spans: Iterable[tuple[int, int]], models: Collection[str]) -> str:
    """Return ``text`` with ``REMOVED`` instead of the ``spans``, but with the names in ``models``."""
    removed = bytearray(len(text))
    for begin, end in spans:
        removed[begin:end] = b"\x01" * (end - begin)
    for name in filter(None, models):
        for match in re.finditer(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
            removed[match.start() : match.end()] = bytes(len(match[0]))
    shown, at = [], 0
    for run in re.finditer(rb"\x01+", removed):
        between = text[at : run.start()]
        if at == 0 or any(map(str.isalnum, between)):
            shown += [between, REMOVED]
        at = run.end()
    return "".join([*shown, text[at:]])


# The operator's addresses, which clients must not read.

_PUBLIC_PATH = re.compile(r"/*+(?:(?:api|openai)(?=/|\Z))?/*+(?:v\d\w*+)?/*+")
_ANY_ADDRESS = re.compile(
    r"""\b[a-z][a-z0-9+.-]{0,30}://[^\s"'<>()]+  # a URL
      | (?<![\w.-])(?:[\w-]+\.)+[A-Za-z]{2,}(?::\d+)?(?:/[^\s"'<>()]*)?(?![\w-])  # a name, with a path
      | (?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w-])
      | (?<![\w.-])[A-Za-z][\w-]*:\d{2,5}(?!\w)  # a name without a domain, and a port
      | \[[0-9A-Fa-f:.]+\](?::\d+)?
    """,
    re.VERBOSE,
)


def without_addresses(text: str) -> str:
    """Return ``text`` with everything that looks like a host or URL masked."""
    return _ANY_ADDRESS.sub(MASK, text)


@lru_cache(maxsize=256)
def addresses(urls: tuple[str, ...]) -> re.Pattern[str] | None:
    """Return a pattern of the hosts of ``urls``, with what follows them in a URL, and of their paths; None for none."""
    patterns = [pattern for url in urls for pattern in _patterns(url)]
    return re.compile("|".join(dict.fromkeys(patterns)), re.IGNORECASE) if patterns else None


def _patterns(url: str) -> Iterator[str]:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if not parts.hostname:
        return
    before, after = r"(?:[a-z][a-z0-9+.-]*://(?:[^\s/@]*@)?)", r"(?:/[^\s\\\"'<>()]*)?"
    host = re.escape(parts.hostname)
    if ":" in parts.hostname:
        yield rf"{before}?\[?{host}\]?(?::\d+)?{after}"
    elif "." in parts.hostname:
        yield rf"{before}?(?<![\w.-]){host}(?![\w-]|\.\w)(?::\d+)?{after}"
    else:  # the name may be a word, such as "model"
        yield rf"{before}{host}(?![\w.-])(?::\d+)?{after}|(?<![\w.-]){host}:\d+{after}"
    path = parts.path.rstrip("/")
    if _PUBLIC_PATH.fullmatch(path) is None:
        yield rf"(?<!\w){re.escape(path)}(?!\w)"
