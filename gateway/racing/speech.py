"""An answer as speech: when a voice can begin, and how long the voice then has to pause."""

from collections.abc import Callable, Iterable

import regex

from gateway.racing.measurement import SpeechListener
from gateway.racing.reader import AnswerText
from providers import UNREADABLE, events

# The first clause of an answer, with which speech may begin. A clause ends with a sentence or a line, or after a number
# of words. Unicode's properties tell the ends of sentences in all scripts. Full stops of abbreviations ("Dr."),
# initials, numbers ("3.5") and list marks end none. In scripts without spaces (Chinese, Japanese, Thai) two characters
# count as a word.

ENOUGH_WORDS = 12  # a breath: some four seconds of speech
_MOST_CHARS = 4_000  # longer text is taken for a clause
# A sentence ends with one of these, and quotes or brackets after it, before a space; in scripts without spaces at once.
_END = regex.compile(r"[\p{Sentence_Terminal}…][\p{Sentence_Terminal}…\p{Pe}\p{Pf}\"'*_]*")
_MAY_GO_ON = regex.compile(r"…|\.\.|[\p{Pe}\p{Pf}\"'*_]$")  # before a lower-case letter such an end ends no sentence
_ORDINAL = regex.compile(r"\d{1,2}")  # "am 3. Mai"
_WITHOUT_SPACES = r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}"
_FULL_WIDTH = regex.compile(r"[。！？｡．։।॥။៕]")  # noqa: RUF001 - they end sentences without a space after them
_WORD = regex.compile(rf"[{_WITHOUT_SPACES}]|[\p{{L}}\p{{N}}\p{{M}}][\p{{L}}\p{{N}}\p{{M}}\p{{Pc}}'’.,-]*")  # noqa: RUF001
_UNSPACED = regex.compile(rf"[{_WITHOUT_SPACES}]")
_BEFORE = regex.compile(r"[\p{L}\p{N}\p{M}.]+$")
_LIST_MARK = regex.compile(r"(?:^|\n)[\s>]*(?:\d{1,3}|\p{L})$")
_CODE = regex.compile(r"^\s*(```|~~~)")
# In lower case, without the last full stop. Words that often end a sentence, such as "etc", are not listed.
_ABBREVIATIONS = """
mr mrs ms dr prof sr jr st rev gen col capt lt sgt hon pres gov messrs mt ft no vs approx fig vol ed pp al
e.g i.e cf viz ca inc ltd corp dept est tel ext jan feb mar apr jun jul aug sep sept oct nov dec
z.b d.h u.a bzw evtl ggf nr str hr fr bspw vgl abs art bd tsd mio mrd inkl exkl
p.ex mme mlle éd env av sra srta sto ud uds pág
"""
_NO_END = frozenset(_ABBREVIATIONS.split())


class Speakable:
    """Finds the first clause of a text that arrives in pieces. ``found`` stays true once set."""

    __slots__ = ("_at", "_enough", "_text", "found")

    def __init__(self, enough_words: int = ENOUGH_WORDS) -> None:
        """``enough_words``: so many words are a clause, even without an end."""
        self.found = False
        self._enough = enough_words
        self._text = ""
        self._at = 0  # no sentence ends before this index

    def add(self, text: str) -> bool:
        """Add a piece; return whether there is a clause now."""
        if self.found or not text:
            return self.found
        self._text += text
        self.found = self._has_end() or self._has_enough() or len(self._text) > _MOST_CHARS
        if self.found:
            self._text = ""
        return self.found

    def _has_end(self) -> bool:
        """Whether a sentence or a line with a word in it has ended."""
        text = self._text
        if _CODE.search(text):
            return False  # code is not spoken; the clause of text after code is found by its number of words
        looked_at = max(0, self._at - 1)
        for end in _END.finditer(text, self._at):
            after = text[end.end() : end.end() + 1]
            is_full_width = _FULL_WIDTH.search(end[0]) is not None
            if not after and not is_full_width:
                break  # decided by the next piece: "3." may be followed by "14"
            if _MAY_GO_ON.search(end[0]) and not is_full_width and after.isspace():
                letter = text[end.end() :].lstrip()[:1]
                if not letter:
                    break  # the next letter decides: "Well… that depends"
                if letter.islower():
                    self._at = end.end()
                    continue
            if (is_full_width or after.isspace()) and self._ends_sentence(end.start(), end[0]):
                return True
            self._at = end.end()
        line = text.find("\n", looked_at)
        while line >= 0:
            if len(_words(text[:line])) > 1:
                return True
            line = text.find("\n", line + 1)
        return False

    def _ends_sentence(self, at: int, end: str) -> bool:
        before = self._text[:at]
        if _WORD.search(before) is None:
            return False
        if not end.startswith("."):
            return True
        if _LIST_MARK.search(before):
            return False  # "1." or "a." at the start of a line
        word = _BEFORE.search(before)
        last = "" if word is None else word[0]
        if last.lower() in _NO_END or last.endswith("str"):  # "Hauptstr. 5"
            return False
        if _ORDINAL.fullmatch(last) and end[0:2] != "..":
            return False
        is_initial = len(last) == 1 and last.isalpha() and last != "I"
        return not is_initial and not _has_initials(last)

    def _has_enough(self) -> bool:
        words = _words(self._text)
        # The last one may go on in the next piece.
        return sum(words[:-1]) >= self._enough


def _words(text: str) -> list[float]:
    """Return the weight of each word: two characters of a script without spaces are one."""
    return [0.5 if _UNSPACED.match(word[0]) else 1.0 for word in _WORD.finditer(text)]


def _has_initials(word: str) -> bool:
    """Whether the word is like "U.S" or "a.m": letters with full stops between them."""
    parts = word.split(".")
    return len(parts) > 1 and all(len(part) == 1 and part.isalpha() for part in parts)


SPOKEN_CHARS_S = 15.0  # of speech: some 160 words of English a minute
# Where a character is a syllable, a voice says some five in a second, and not fifteen.
_SYLLABLES = regex.compile(r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]")
_OF_A_SYLLABLE = 3  # characters of other scripts: each takes as long to say as one syllable


def spoken_s(text: str) -> float:
    """Return how long a voice takes for ``text``."""
    if text.isascii():
        return len(text) / SPOKEN_CHARS_S
    return (len(text) + (_OF_A_SYLLABLE - 1) * len(_SYLLABLES.findall(text))) / SPOKEN_CHARS_S


class Speech(AnswerText):
    """The text of an answer as speech; text after the first clause is not kept.

    The blocks of an answer are joined as one text.
    """

    def __init__(self, texts: Callable[[bytes], Iterable[tuple[int, str]]], enough_words: int) -> None:
        """``texts`` as for AnswerText; ``enough_words`` as for Speakable."""
        super().__init__(texts)
        self.began_at: float | None = None  # when there was a first clause
        self.has_text = False
        self.listener = SpeechListener()
        self._enough_words = enough_words
        self._speakable = Speakable(enough_words)

    def add(self, texts: Iterable[str]) -> None:
        """Add text of the answer."""
        for text in texts:
            self.listener.add(spoken_s(text))
            self.has_text = self.has_text or bool(text)
            self._speakable.add(text)

    def came(self, now: float, *, is_over: bool, is_spoken: bool) -> None:
        """Record that the text added since the last call arrived ``now``.

        ``is_over``: the answer is complete, so the text is a clause. ``is_spoken`` False: the answer is not text.
        """
        if self.began_at is None:
            if not is_spoken or self._speakable.found or (is_over and self.has_text):
                self.began_at = self.listener.until = now
            else:
                return
        self.listener.hear(now)

    def restart(self) -> None:
        """Drop the text so far, which was thoughts, unless a voice has it already."""
        if self.began_at is None:
            self.has_text = False
            self.listener.restart()
            self._speakable = Speakable(self._enough_words)

    def put(self, place: int, text: str) -> None:
        """Add text of a block."""
        del place
        self.add((text,))


_ENDED = regex.compile(rf"(?:{_END.pattern}|\n)\s*$")


class Clauses:
    """Holds back the events of an unfinished clause, so that an answer that breaks off ends with a whole clause."""

    __slots__ = ("_events", "_is_clause", "_open_s", "_speakable", "_text", "_texts", "since")

    def __init__(self, texts: Callable[[bytes], Iterable[tuple[int, str]]]) -> None:
        """``texts`` as for AnswerText."""
        self._texts = texts
        self._open_s = 0.0  # seconds of speech since the last clause began, of the text that was let through
        self._is_clause = True  # whether the text that was let through ends with a clause
        self._restart()

    def _restart(self) -> None:
        self.since = 0.0  # when the first of these events came
        self._events: list[bytes] = []
        self._text = ""
        self._speakable = Speakable(_MOST_CHARS)

    @property
    def held(self) -> bytes:
        """The events of the clause that has not ended."""
        return b"".join(self._events)

    @property
    def open_s(self) -> float:
        """How many seconds a voice takes for the held text, and for the clause before it.

        The voice may not know yet that the clause before has ended: only the next word shows the end.
        """
        return self._open_s + self.held_s

    @property
    def held_s(self) -> float:
        """How long a voice takes for the held text."""
        return spoken_s(self._text)

    @property
    def has_ended(self) -> bool:
        """Whether the held text ends like a clause, as far as that shows without the next text."""
        return _ENDED.search(self._text) is not None

    def add(self, block: bytes, now: float) -> bytes:
        """Return the events up to the last end of a clause, of those held and the new ``block``; only text is held."""
        ready: list[bytes] = []
        for event in events(block):
            if not event.data:  # a comment, which may stand anywhere
                ready.append(event.raw)
            elif not (text := self._text_of(event.data)):
                ready += [self.release(), event.raw]
            else:
                is_over = self._speakable.add(text)
                if is_over and self.has_ended:  # this event's text begins another clause
                    ready.append(self.release())
                    is_over = self._speakable.add(text)
                self.since = self.since if self._events else now
                self._events.append(event.raw)
                self._text += text
                if is_over:
                    ready.append(self.release())
        return b"".join(ready)

    def release(self) -> bytes:
        """Return the held events, and hold none."""
        clause = self.held
        if self._text:
            self._open_s = self.held_s + (0.0 if self._is_clause else self._open_s)
            self._is_clause = self.has_ended
        self._restart()
        return clause

    def _text_of(self, data: bytes) -> str:
        try:
            return "".join(text for _, text in self._texts(data))
        except UNREADABLE:
            return ""
