"""Writes plain events of one dialect in another without decoding them: a JSON string's bytes are the same in both."""

import re
from collections.abc import Callable, Sequence

import msgspec

from providers.bodies import LARGE_BYTES, sent_forms, silent_bytes
from providers.dialects.chat.shortened import ShorteningTranslation
from providers.dialects.dialect import Dialect, NotingTranslation, Translation
from providers.dialects.events import Pattern, Run
from providers.refusals import UpstreamError

LESSONS = 8  # events that are looked at one by one until two have shown how plain events are translated
AGAIN, LESSONS_AGAIN = 8, 2  # after so many other blocks, so many lessons: an answer may begin with thoughts
_FIELD_BYTES = 8  # of a field's name, up to the text
_BLANK_LINE = re.compile(rb"(\r?\n)\1")


class _Form(msgspec.Struct, frozen=True):
    """An event of the target without its text."""

    before: bytes
    after: bytes
    counter: re.Match[bytes] | None  # in ``before``; the first group is the number

    def of(self, raw_texts: Sequence[bytes], number: int) -> bytes:
        """Return events with these texts, written as in JSON; the first has this ``number``."""
        before, after = self.before, self.after
        if self.counter is None:
            return before + (after + before).join(raw_texts) + after
        begin, end = self.counter.span(1)
        head, tail = before[:begin], before[end:]
        return b"".join([b"%b%d%b%b%b" % (head, at, tail, raw, after) for at, raw in enumerate(raw_texts, number)])


class Splicer:
    """Learns the translation of plain events in one answer, and translates the following ones the same way.

    Two plain events in a row are translated one by one. The first may begin something. The translation of the second is
    that of all other plain events, except for text and number: plain events differ in nothing else. Any other event may
    change the translation, so afterwards it is learnt again.
    """

    def __init__(self, source: Dialect, target: Dialect, steps: Sequence[Translation]) -> None:
        self._read_event = source.answers.read_event
        # If texts end somewhere (stop strings, limits), each text has to be looked at.
        self._learned = None if ShorteningTranslation in map(type, steps) else source.answers.learned
        self._counter = None if target.answers.numbers is None else target.answers.numbers.counter
        self._spliced: list[Callable[[Run], None]] = [
            each.spliced for each in steps if isinstance(each, NotingTranslation)
        ]
        self._pattern: Pattern | None = None
        self._was_plain = False
        self._form: _Form | None = None
        self._number = 0  # of the next event
        self._lessons = 0 if self._learned is None else LESSONS
        self._others = 0  # blocks from which nothing was learnt

    @property
    def learns(self) -> bool:
        """Whether the next event should be translated alone, and shown to ``learn``."""
        return self._form is None and self._lessons > 0

    def looks_at(self, block: bytes) -> bool:
        """Note a block that has to be translated; return whether to ``learn`` from its events, one by one."""
        if block.startswith(b":") and silent_bytes(block) == len(block):
            return False
        self._form = None  # other events may change what plain ones become
        is_large = len(block) > LARGE_BYTES
        if is_large or not self.learns:
            self._was_plain = False
            self._others += 1
            if self._learned is not None and not self._others % AGAIN:
                self._lessons = LESSONS_AGAIN
        return self.learns and not is_large

    def learn(self, event: bytes, said: bytes, secrets: Sequence[str]) -> None:
        """Learn from one whole ``event`` and its translation, ``said``."""
        self._lessons -= 1
        run = self._run(event) or self._first(event, secrets)
        was_plain, self._was_plain = self._was_plain, run is not None
        if run is None or not was_plain or len(_BLANK_LINE.findall(said)) != 1:
            return
        if any(secret in said for secret in sent_forms(secrets)):
            return  # each event has to be read, and the key masked
        before, *after = said.split(b'"%b"' % run.raw_texts[0])
        if len(after) != 1:  # the text stands elsewhere too, or is written in another way
            return
        counter = None if self._counter is None else self._counter.search(before)
        if self._counter is not None:
            if counter is None:
                return
            self._number = int(counter[1]) + 1
        self._form = _Form(before + b'"', b'"' + after[0], counter)

    def find(self, block: bytes) -> Run | None:
        """Return the plain events at the beginning of ``block``, if they can be spliced; None: translate the block."""
        if self._form is None or self._pattern is None:
            return None
        run = self._pattern.find(block)
        return run if run is not None and not run.start and run.is_json else None

    def say(self, run: Run) -> bytes:
        """Return the translation of plain events, and note that it was sent."""
        said = self.said(run)
        self.sent(run)
        return said

    def said(self, run: Run) -> bytes:
        """Return the translation of plain events. Once it is sent, call ``sent``."""
        assert self._form is not None  # ``run`` was found
        return self._form.of(run.raw_texts, self._number)

    def sent(self, run: Run) -> None:
        """Note that the translation was sent."""
        self._number += len(run.raw_texts)
        self._lessons = LESSONS
        for spliced in self._spliced:
            spliced(run)

    def _run(self, event: bytes) -> Run | None:
        run = None if self._pattern is None else self._pattern.find(event)
        return run if run is not None and not run.start and run.end == len(event) and run.is_json else None

    def _first(self, event: bytes, secrets: Sequence[str]) -> Run | None:
        """Learn another pattern, if the event has one."""
        known = self._pattern
        if self._learned is None or (data := event.find(b"data: ")) < 0:
            return None
        if known is not None and known.before[-_FIELD_BYTES:] not in event:
            return None  # the text's field is missing: this is the end of the answer, or another event
        try:
            self._pattern = self._learned(event, self._read_event(event[data + len(b"data: ") :].strip(), secrets))
        except UpstreamError:
            self._pattern = None
        self._pattern = self._pattern or known
        self._was_plain = False
        return self._run(event)
