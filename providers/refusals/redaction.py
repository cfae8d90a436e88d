"""Removes secrets from providers' texts, so that these can be shown and stored.

A secret is found as it stands, in the other case, in base64, in hexadecimal digits, percent-encoded, as HTML entities
or escaped as in JSON. Any part of a secret that is long enough to be of use is found in the same ways.
"""

import html
import re
import sys
from array import array
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec

MASK = "***"

# The format of keys in general: a provider may echo another key than ours, or a part of one. A client's key
# (hs-…) is never sent to providers.
_PREFIXES = ("hs-", "sk-", "gsk_", "csk-", "xai-", "nvapi-", "pplx-", "fw_", "hf_", "r8_", "tgp_", "AIza")
_KEY_SHAPES = re.compile(
    rf"""(?P<lead>\b(?:Bearer|Basic|bearer|basic)\s+|[?&](?:api[-_]?key|key|token)=)[^\s"'&<>]+
      | (?P<user>://[^\s/:@]*:)[^\s/@]+(?=@)
      | (?<![\w-])(?:{"|".join(_PREFIXES)})[A-Za-z0-9_*.\-]{{8,}}
    """,
    re.VERBOSE,
)
# The common prefix of a vendor's keys, which is not secret.
_PUBLIC = re.compile(rf"(?:{'|'.join(_PREFIXES)})(?:(?:proj|svcacct|admin|ant|or)-)?(?:(?:api|admin|v)[0-9]+-)?")
# Keys of local servers may be "x" or "ollama"; masking such words would make messages unreadable.
SHORTEST_SECRET = 6
_PART_CHARS = 12  # of a secret beyond its public beginning; a shorter part is of no use to others
# A byte for each character, in lower case, with the signs of both base64 alphabets made one.
_FOLDED = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ-_", b"abcdefghijklmnopqrstuvwxyz+/")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}|&#?[0-9A-Za-z]|\\(?:u00|x)[0-9A-Fa-f]{2}")
_ESCAPED = re.compile(r"\\(?:u00|x)([0-9A-Fa-f]{2})")
_DECODED_TIMES = 3  # a text encoded more often is of no use to others either
_WORD = 4  # bytes
_SEEN_CHARS = 3 * _WORD - 1  # any so many characters contain a whole word that starts at a multiple of two words
_MOST_FOUND = 1000  # words of secrets in one text; with more, comparing would take long, and the whole text is masked


class _Form(NamedTuple):
    """One encoding of a secret, in the form used for searching."""

    at: int  # the start of this form in ``_Sought.text``
    public: int  # characters at the beginning that are not secret, such as "sk-proj-"
    least: int  # so many further characters, or more, count as a part of the secret


class _Sought(NamedTuple):
    """All forms of some secrets, folded.

    Any part of a long form has one of its ``words`` at a place of a text that is a multiple of two words. So only one
    number for eight characters is looked up, whatever the number of secrets.
    """

    text: bytes  # the forms, each followed by a zero byte
    forms: tuple[_Form, ...]
    words: frozenset[int]  # the ``_WORD`` characters at each place of the long forms, as one number
    short: tuple[bytes, ...]  # forms too short to have such words, without their public beginning


class ClientSecrets(tuple[str, ...]):  # noqa: SLOT001 - keeps the forms that were computed
    """Secrets of one client, and the computed forms, which are in no cache and so end with the secrets."""

    @cached_property
    def sought(self) -> "_Sought | None":
        """The forms to search for."""
        return _sought.__wrapped__(self)

    @cached_property
    def sent(self) -> tuple[bytes, ...]:
        """The secrets that are long enough to be masked, as they stand in an answer."""
        return tuple(each.encode(errors="surrogateescape") for each in self if len(each) >= SHORTEST_SECRET)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return ``text`` with all ``secrets``, and everything else that looks like a key, replaced by ``***``."""
    secret_texts = secrets if isinstance(secrets, tuple) else tuple(secrets)
    if secret_texts:
        text = _without(text, secret_texts)
    if not _may_have_key(text):
        return text
    return _KEY_SHAPES.sub(lambda match: (match["lead"] or match["user"] or "") + MASK, text)


def holds(text: str, secrets: tuple[str, ...]) -> bool:
    """Whether ``redact`` may find one of ``secrets`` in ``text``; fast if not."""
    if ("%" in text or "&" in text or "\\" in text) and _ENCODED.search(text) is not None:
        return _without(text, secrets) != text
    sought = secrets.sought if type(secrets) is ClientSecrets else _sought(secrets)
    return sought is not None and _may_hold(text.encode("latin-1", "replace").translate(_FOLDED), sought)


def redact_word(word: str, secrets: Sequence[str] = ()) -> str:
    """Redact ``word``; faster than ``redact`` for an id of letters, digits, - and _."""
    raw = word.encode("latin-1", "replace")
    if not raw.translate(None, b"-_").isalnum() or word.startswith(_PREFIXES):
        return redact(word, secrets)
    if type(secrets) is ClientSecrets:
        return redact(word, secrets)
    sought = _sought(tuple(secrets)) if secrets else None
    return word if sought is None or not _may_hold(raw.translate(_FOLDED), sought) else redact(word, secrets)


def redact_json(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a decoded JSON ``value`` with its strings redacted, names of fields included.

    Values nested deeper than Python's stack are masked.
    """
    secret_texts = secrets if isinstance(secrets, tuple) else tuple(secrets)
    try:
        match value:
            case str():
                return redact(value, secret_texts)
            case list():
                return [redact_json(item, secret_texts) for item in value]
            case dict():
                return {redact(str(key), secret_texts): redact_json(item, secret_texts) for key, item in value.items()}
            case _:
                return value
    except RecursionError:
        return MASK


def _may_have_key(text: str) -> bool:
    """Whether ``_KEY_SHAPES`` may match: a few searches for pieces of the pattern, which are much faster."""
    return (
        (("-" in text or "_" in text) and any(prefix in text for prefix in _PREFIXES))
        or ("://" in text and "@" in text)
        or (("?" in text or "&" in text) and "=" in text)
        or "earer" in text
        or "asic" in text
        or "AIza" in text
    )


def _without(text: str, secrets: tuple[str, ...]) -> str:
    """Return ``text`` without ``secrets``; decoded if secrets appear only in the decoded text."""
    sought = secrets.sought if type(secrets) is ClientSecrets else _sought(secrets)
    if sought is None:
        return text
    shown = _masked(text, sought)
    if not ("%" in text or "&" in text or "\\" in text):
        return shown
    decoded = text
    for _ in range(_DECODED_TIMES):
        if _ENCODED.search(decoded) is None:
            break
        decoded = _decoded(decoded)
        masked = _masked(decoded, sought)
        if masked != decoded and masked != _decoded(shown):
            shown = masked
    return shown


def _decoded(text: str) -> str:
    if "%" in text:
        text = unquote(text)
    if "&" in text:
        with suppress(ValueError):  # a character's number of thousands of digits
            text = html.unescape(text)
    if "\\" in text:
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    return text


def _masked(text: str, sought: _Sought) -> str:
    spans = _spans(text, sought)
    if not spans:
        return text
    shown, at = [], 0
    for begin, end in sorted(spans):
        if begin >= at:
            shown += [text[at:begin], MASK]
        at = max(at, end)
    return "".join(shown) + text[at:]


def _may_hold(folded: bytes, sought: _Sought) -> bool:
    """Whether a text may have a form, or a part of one: a fast check with few false positives."""
    if not sought.words.isdisjoint(array("I", folded[: len(folded) & -_WORD])[::2]):
        return True
    return any(form in folded for form in sought.short) if sought.short else False


def _spans(text: str, sought: _Sought) -> Sequence[tuple[int, int]]:
    """Return the spans of forms, or parts of them, in ``text``."""
    folded = text.encode("latin-1", "replace").translate(_FOLDED)
    if not _may_hold(folded, sought):
        return ()
    places = range(0, len(folded) - _WORD + 1, 2 * _WORD)
    pieces = [(at, folded[at : at + _WORD]) for at in places]
    matching = [(at, piece) for at, piece in pieces if int.from_bytes(piece, sys.byteorder) in sought.words]
    matching += [(match.start(), form) for form in sought.short for match in re.finditer(re.escape(form), folded)]
    if len(matching) > _MOST_FOUND:
        return [(0, len(text))]
    return tuple(span for at, piece in matching for span in _around(folded, at, piece, sought))


def _around(folded: bytes, at: int, piece: bytes, sought: _Sought) -> Iterator[tuple[int, int]]:
    """Compare the surroundings of a piece of text with each form that contains the piece."""
    text = sought.text
    place = text.find(piece)
    while place >= 0:
        form = sought.forms[bisect_right(sought.forms, place, key=_begin) - 1]
        begin, end, first, last = at, at + len(piece), place, place + len(piece)
        while begin and first > form.at and folded[begin - 1] == text[first - 1]:
            begin, first = begin - 1, first - 1
        while end < len(folded) and text[last] and folded[end] == text[last]:
            end, last = end + 1, last + 1
        if last - max(first, form.at + form.public) >= form.least:
            yield begin, end
        place = text.find(piece, place + 1)


@lru_cache(maxsize=1024)
def _sought(secrets: tuple[str, ...]) -> _Sought | None:
    """Return the forms of ``secrets`` to search for; None if there are none."""
    known = [form for each in dict.fromkeys(secrets) if len(each) >= SHORTEST_SECRET for form in _forms_of(each)]
    if not known:
        return None
    text, forms, short = b"", [], []
    words: set[int] = set()
    for form, public, least in known:
        folded = form.encode("latin-1", "replace").translate(_FOLDED)
        forms.append(_Form(len(text), public, least))
        text += folded + b"\0"
        if least < _SEEN_CHARS:
            short.append(folded[public:])
        else:
            places = range(public, len(folded) - _WORD + 1)
            words.update(array("I", b"".join(folded[at : at + _WORD] for at in places)))
    return _Sought(text, tuple(forms), frozenset(words), tuple(dict.fromkeys(short)))


def _forms_of(secret: str) -> Iterator[tuple[str, int, int]]:
    """Return each form of a secret, with the numbers of its public first characters and of a part's characters."""
    found = _PUBLIC.match(secret)
    public = found.end() if found is not None and len(secret) - found.end() >= SHORTEST_SECRET else 0
    # Only the whole of an address is secret.
    least = len(secret) - public if "://" in secret else min(_PART_CHARS, len(secret) - public)
    raw = secret.encode(errors="surrogateescape")
    yield secret, public, least
    yield raw.hex(), 2 * public, 2 * least
    for shift in range(3):  # its place among the groups of three bytes that base64 encodes
        first, end = -(-shift * 4 // 3), (shift + len(raw)) * 4 // 3  # characters that are of the secret alone
        ahead = -(-(shift + public) * 4 // 3) - first
        encoded = b64encode(bytes(shift) + raw).decode()[first:end]
        yield encoded, ahead, min(len(encoded) - ahead, least * 4 // 3 - 2)


def _begin(form: _Form) -> int:
    return form.at


# Records with secrets or clients' texts, which must not appear in tracebacks, debuggers or logs.


class MaskedRecord(msgspec.Struct, frozen=True):
    """A record whose ``repr``, ``str`` and rich output have only the fields that ``shown`` returns."""

    def shown(self) -> Iterable[tuple[str, object]]:
        """Return the names and values that may be shown; none unless overridden."""
        return ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.shown())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:  # msgspec's own yields every field
        return list(self.shown())
