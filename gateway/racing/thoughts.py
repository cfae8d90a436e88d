"""Thoughts inside the text of an answer: a server that does not separate thoughts sends them first, between marks.

For example ``<think>The user asks …</think>Paris``: only "Paris" is the answer. Thoughts do not win and are not spoken;
their bytes pass unchanged.

Some chat templates write the opening mark into the prompt. Then the answer has only the closing mark: ``The user asks
…</think>Paris``. The gateway learns which deployments do so, for which switches of thinking in the request, and forgets
a deployment when its answers no longer have a lone closing mark.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from providers import UNREADABLE
from providers.dialects import AnswerFormat, Chunk

# How the thoughts of a model begin and end, in lower case. Who sends them:
# - think: DeepSeek, Qwen, GLM, MiniMax, https://github.com/deepseek-ai/DeepSeek-R1/issues/526 (also without the first)
# - thinking: Amazon Nova, https://docs.aws.amazon.com/nova/latest/userguide/tool-use-invocation.html
# - thought: Gemini in chat, https://github.com/GoogleCloudPlatform/generative-ai/pull/2090
# - seed:think, [think], <|start_thinking|>, <|channel>thought, <|inner_prefix|>: ByteDance's Seed, Mistral's Magistral,
#   Cohere's Command A, Gemma 4 and Apertus, https://github.com/vllm-project/vllm/tree/main/vllm/reasoning
# - the channel of an analysis: gpt-oss, https://github.com/ml-explore/mlx-lm/pull/1867
_MARKS: Mapping[str, tuple[str, ...]] = {
    **{
        f"<{name}>": (f"</{name}>",) for name in ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think")
    },
    "[think]": ("[/think]",),
    "◁think▷": ("◁/think▷",),  # Kimi
    "<|channel|>analysis<|message|>": ("<|end|>", "<|channel|>final<|message|>"),
    "<|channel>thought": ("<channel|>",),
    "<|start_thinking|>": ("<|end_thinking|>",),
    "<|inner_prefix|>": ("<|inner_suffix|>",),
}
# Between thoughts and answer, and a part of neither.
_BETWEEN = ("<|start|>assistant", "<|channel|>final<|message|>", "<|start_response|>")
# gpt-oss without marks (https://github.com/Augustas11/macprovider/issues/743): a capital letter follows at once.
_UNMARKED, _UNMARKED_END = "analysis", ("assistantfinal",)
_FEW = 4  # letters of ``analysis``: so many begin other words, too
_PREFIXES = frozenset(mark[:end] for mark in (*_MARKS, *_BETWEEN) for end in range(1, len(mark) + 1))
_LONGEST = 32  # characters of a mark


def _ending(closings: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, closings)), re.IGNORECASE)


_CLOSINGS = {closings: _ending(closings) for closings in (*_MARKS.values(), _UNMARKED_END)}
# Closing marks that may come alone. No other mark is ever all that is left of a pair.
_LONE = tuple(closing for closings in _MARKS.values() for closing in closings if "/" in closing)
_lone = _ending(_LONE)
_opening = _ending(opening for opening in _MARKS if opening.isascii())
_FENCE = re.compile(r"```|~~~")
_QUOTES = frozenset("`'\"“”‘’«»()")  # noqa: RUF001 - quotes of several languages
_BLANKS = frozenset(" \t")
_GOES_ON = frozenset(",.;:!?")  # after a mark that a sentence mentions; no answer begins with one of these
_NEAR = 8  # characters around a mark

# Only an event that matches may begin a thought: its text is blank, or may begin a mark. The byte behind a string's
# quote rules most strings out.
may_begin = re.compile(
    rb'"(?=[ \\<\xe2\[a])(?:'
    rb'(?: |\\[nrt])*(?:<|\\u003[cC]|\\u25[cC]1|\xe2\x97\x81|\[[tT"]|analys?i?s?["A-Z])|(?: |\\[nrt])+")'
).search

MOST_CHARS = 256 * 1024  # of thoughts whose opening mark the template wrote: longer text is an answer
MOST_BLANK = 4_096  # characters before the first letter
MOST_UNPROVEN = 20  # after so many streams in a row without the expected closing mark, no thoughts are expected
# Streams that are searched for a lone closing mark: the first ``FIRST_STREAMS`` whole ones of a deployment (among its
# first ``MOST_FIRST_STREAMS``), then one in ``EACH_STREAM``.
FIRST_STREAMS, MOST_FIRST_STREAMS, EACH_STREAM = 3, 12, 100
MOST_DEPLOYMENTS = 1000  # clients may name deployments of their own
MOST_SWITCHES = 32

# How requests switch thinking on and off: https://qwen.readthedocs.io/en/latest/deployment/vllm.html and others.
_SWITCHES = ("chat_template_kwargs", "enable_thinking", "reasoning", "reasoning_effort", "think", "thinking")

Fields = Mapping[str, msgspec.Raw]
_Switches = tuple[bytes, ...]


class Habit:
    """What is known of one deployment: for which switches of thinking the chat template writes the opening mark."""

    __slots__ = ("_looked", "_sought", "left", "opened")

    def __init__(self) -> None:
        self.opened: dict[_Switches, int] = {}  # switches → streams since the last lone closing mark
        self.left = 0  # streams until the next search; the reader of each stream counts down
        self._sought = 0  # streams that were searched
        self._looked = 0  # of these, the ones that were searched to their end

    def begin(self, fields: Fields, *, keeps: bool) -> "Thoughts | None":
        """Return a search for thoughts in the answer to ``fields``; None: only a mark at the beginning needs one.

        Callers skip this if nothing is ``opened`` and some are ``left``. ``keeps``: the text is needed, also text that
        looked like thoughts and turns out to be the answer.
        """
        switches = _switches(fields)
        unproven = self.opened.get(switches)
        if unproven is not None and unproven < MOST_UNPROVEN:
            self.opened[switches] = unproven + 1
            return Thoughts(self, switches, expected=True, keeps=keeps)
        self.opened.pop(switches, None)
        if self.left >= 0:
            return None
        self._sought += 1
        is_new = self._looked < FIRST_STREAMS and self._sought < MOST_FIRST_STREAMS
        self.left = 0 if is_new else EACH_STREAM - 1
        return Thoughts(self, switches, seeks=True)

    def learn(self, switches: _Switches) -> None:
        """Note that a closing mark came without an opening mark."""
        self.opened[switches] = 0
        if len(self.opened) > MOST_SWITCHES:
            del self.opened[next(iter(self.opened))]

    def forget(self, switches: _Switches) -> None:
        """Note that an answer came without thoughts, or with an opening mark."""
        self.opened.pop(switches, None)

    def looked(self) -> None:
        """Note that the whole text of a stream had no lone closing mark."""
        self._looked += 1


def _switches(fields: Fields) -> _Switches:
    return tuple(bytes(fields.get(name, b"")) for name in _SWITCHES)


class HabitsByDeployment(dict[str, Habit]):
    """The habits of all deployments in this process; beyond ``MOST_DEPLOYMENTS`` nothing is kept."""

    def __missing__(self, deployment: str) -> Habit:
        """Return a new habit for an unknown deployment, and keep it."""
        habit = Habit()
        if len(self) < MOST_DEPLOYMENTS:
            self[deployment] = habit
        return habit


class _State(Enum):
    BEGINNING = "beginning"  # of the text, or behind a thought: blank so far, or a piece of a mark
    THINKING = "thinking"
    ANSWERING = "answering"


class Thoughts:
    """Finds the thoughts in one text that arrives in pieces."""

    __slots__ = (
        "_closing", "_expected", "_habit", "_held", "_is_expected", "_is_fenced", "_keeps", "_kept", "_kept_chars",
        "_seeks", "_since", "_state", "_switches", "_tail", "has_thought", "is_found",
    )  # fmt: skip

    def __init__(
        self,
        habit: Habit | None = None,
        switches: _Switches = (),
        *,
        expected: bool = False,
        seeks: bool = False,
        keeps: bool = False,
    ) -> None:
        """``expected``: the template begins the thoughts. ``seeks``: look for a lone closing mark, to learn this."""
        self.is_found = False  # a lone closing mark has come: the text before it was thoughts, not the answer
        self._habit = habit
        self._switches = switches
        self._expected = expected
        self._seeks = seeks
        self._keeps = keeps
        self._state = _State.BEGINNING
        self.has_thought = False  # whether a thought has ended
        self._held = ""  # what may become a mark, and the blanks before it
        self._since: float | None = None  # when the answer began, if the held text belongs to the answer
        self._closing = _lone
        self._is_expected = False  # whether the model is expected to think, though no mark has come
        self._tail = ""
        self._kept: list[str] = []
        self._kept_chars = 0
        self._is_fenced = False  # whether the text so far ends within a block of code

    @property
    def is_thinking(self) -> bool:
        """Whether the text so far ends within a thought."""
        return self._state is _State.THINKING

    @property
    def has_begun(self) -> bool:
        """Whether the answer has begun."""
        return self._state is _State.ANSWERING

    @property
    def is_over(self) -> bool:
        """Whether the answer has begun, and nothing is looked for any more."""
        return self._state is _State.ANSWERING and not self._seeks

    @property
    def began_at(self) -> float | None:
        """When the answer began. While a possible mark is held: when the answer began if this is no mark."""
        return self._since

    def take(self, text: str, now: float) -> str:
        """Add a piece; return the text that is now known to be answer, perhaps with earlier pieces."""
        if self._state is _State.ANSWERING:
            return self._seek(text, now) if self._seeks else text
        if self._state is _State.THINKING:
            return self._think(text, now)
        if self._since is None and (text.strip() or not self.has_thought):
            self._since = now
        self._held += text
        return self._begin(now)

    def other(self, now: float) -> None:
        """Note that the answer continues with something other than text: a call, sound, a refusal."""
        if self._state is _State.ANSWERING and self._seeks:
            self._find(now, is_last=True)
        self._seeks = False
        self._state = _State.ANSWERING

    def separate(self) -> None:
        """Note that the server sends thoughts apart from the text."""
        if self._expected:
            self._forget()
        self.other(0.0)

    def finish(self, now: float, *, is_cut_short: bool) -> str:
        """End the text; return held text that has turned out to be answer.

        ``is_cut_short``: a limit ended the text, perhaps within the thoughts.
        """
        if self._state is _State.ANSWERING:
            if self._seeks and not self._find(now, is_last=True) and self._habit is not None and not is_cut_short:
                self._habit.looked()
            self._seeks = False
        elif self._state is _State.BEGINNING and (self._held.strip() or (self._since is not None)):
            self._state = _State.ANSWERING
            return self._held
        elif self._state is _State.THINKING and self._is_expected and not is_cut_short:
            return self._give_up()
        return ""

    @property
    def was_answer(self) -> bool:
        """Whether the text was the answer, though thoughts were expected. Known at the end."""
        return self._is_expected and self._state is _State.ANSWERING

    def _begin(self, now: float) -> str:
        """Look at the held text: a thought, the answer, or still undecided."""
        head = self._held.lstrip()
        while (between := next(filter(head[:_LONGEST].lower().startswith, _BETWEEN), None)) is not None:
            self._held = head[len(between) :]
            head = self._held.lstrip()
            self._since = now if head else None
            self.has_thought = True  # blanks after thoughts are no answer
        opened = _opened(head)
        if opened is None and ((not head and len(self._held) <= MOST_BLANK) or _may_become_mark(head)):
            return ""
        if opened is not None:
            if self._expected and not self.has_thought:
                self._forget()  # the template begins none any more: the model does
            return self._think_on(*opened, now)
        text, self._held = self._held, ""
        if self._expected and not self.has_thought:
            self._is_expected = True
            return self._think_on(text, _lone, now)
        self._state = _State.ANSWERING
        self._seeks = self._seeks and not self.has_thought
        if self._seeks:
            return self._seek(text, now)
        return head if self.has_thought else text

    def _think_on(self, text: str, closing: re.Pattern[str], now: float) -> str:
        self._state, self._closing = _State.THINKING, closing
        self._held = self._tail = ""
        return self._think(text, now)

    def _think(self, text: str, now: float) -> str:
        """Look for the end of the thought."""
        self._tail += text
        if self._is_expected:
            self._kept_chars += len(text)
            if self._keeps:
                self._kept.append(text)
            if self._kept_chars > MOST_CHARS:
                return self._give_up()
        end = self._closing.search(self._tail)
        if end is None:
            self._tail = self._tail[-_LONGEST:]
            return ""
        if self._is_expected and self._habit is not None:
            self._habit.learn(self._switches)
        rest = self._tail[end.end() :]
        self._begin_again()
        return self.take(rest, now) if rest else ""

    def _begin_again(self) -> None:
        self._state, self.has_thought = _State.BEGINNING, True
        self._tail, self._held, self._since = "", "", None
        self._kept, self._is_expected = [], False

    def _give_up(self) -> str:
        self._forget()
        self._state = _State.ANSWERING
        return "".join(self._kept)

    def _seek(self, text: str, now: float) -> str:
        """Look for a lone closing mark; return ``text``, or the part of it after such a mark."""
        self._tail += text
        return self._begin(now) if self._find(now, is_last=False) else text

    def _find(self, now: float, *, is_last: bool) -> bool:
        """Whether a thought has ended; what follows is undecided again."""
        end = _lone.search(self._tail)
        mentioned = _opening.search(self._tail)
        if mentioned is not None and (end is None or mentioned.start() < end.start()):
            self._seeks = False  # the text is about marks
            return False
        if end is None:
            self._forget_tail()
            return False
        if not is_last and not self._tail[end.end() :].strip(" \t"):
            return False  # the next piece shows
        before, after = self._tail[: end.start()], self._tail[end.end() :]
        fences = len(_FENCE.findall(before))
        if (self._is_fenced is not bool(fences % 2)) or _is_mention(before, after):
            self._seeks = False
            return False
        if self._habit is not None:
            self._habit.learn(self._switches)
        self.is_found, self._seeks = True, False
        self._begin_again()
        self._held = after
        self._since = now if after.strip() else None
        return True

    def _forget_tail(self) -> None:
        """Keep only text that may be part of a mark, and whether that text is within a block of code."""
        n_kept = _LONGEST + _NEAR
        if len(self._tail) > 2 * n_kept:
            forgotten = self._tail[:-n_kept]
            self._is_fenced ^= bool(len(_FENCE.findall(forgotten)) % 2)
            self._tail = self._tail[-n_kept:]

    def _forget(self) -> None:
        if self._habit is not None:
            self._habit.forget(self._switches)


def _opened(head: str) -> tuple[str, re.Pattern[str]] | None:
    """Return the text after the mark that begins ``head``, and the pattern of the closing mark; None: no mark."""
    start = head[:_LONGEST].lower()
    for mark, closings in _MARKS.items():
        if start.startswith(mark):
            return head[len(mark) :], _CLOSINGS[closings]
    end = len(_UNMARKED)
    return (head[end:], _CLOSINGS[_UNMARKED_END]) if start.startswith(_UNMARKED) and head[end:][:1].isupper() else None


def _may_become_mark(head: str) -> bool:
    """Whether ``head`` may become a mark with more text."""
    return head[: _LONGEST + 1].lower() in _PREFIXES or (len(head) > _FEW and _UNMARKED.startswith(head))


def _is_mention(before: str, after: str) -> bool:
    """Whether a sentence mentions the mark between ``before`` and ``after``, as in "the tag </think> ends it"."""
    last, first = before[-1:], after[:1]
    word = after.lstrip(" \t")[:1]
    if word in _GOES_ON or (last in _QUOTES and first in _QUOTES):
        return True
    return last in _BLANKS and first in _BLANKS and word.islower()


def after_thoughts(text: str) -> str | None:
    """Return the part of a whole ``text`` after its thoughts; None if there are no thoughts."""
    thoughts = Thoughts(seeks=True)
    answer = thoughts.take(text, 0.0)
    if thoughts.is_found or thoughts.has_thought:
        return answer + thoughts.finish(0.0, is_cut_short=False)
    return None


# The thoughts in all texts of one answer.


class ClassifiedEvent(msgspec.Struct):
    """One event as it is counted, and the text that has turned out to be answer since the event before."""

    chunk: Chunk
    said: Sequence[tuple[int, str]] = ()  # by choice, item or block
    is_restarted: bool = False  # all text before this event was thoughts
    is_later: bool = False  # the answer began later than it seemed
    answer_at: float | None = None  # when the answer began, if this event shows it
    answer_chars: int = 0  # characters that were counted as thoughts, and are the answer


_MORE = Chunk(b"", meaningful=True, answer=True)


class AnswersThoughts:
    """Finds the thoughts in the texts of an answer: one text, or one of each choice."""

    __slots__ = ("_answers", "_by_place", "_first", "_is_one", "_is_restarted", "_thought_chars", "is_over")

    def __init__(self, answers: AnswerFormat, first: Thoughts | None, *, is_one: bool) -> None:
        """``first``: of the only text; None: nothing is known. ``is_one``: only one answer was asked for."""
        self.is_over = False
        self._answers = answers
        self._is_one = is_one
        self._by_place: dict[int, Thoughts] = {0: first} if first is not None and is_one else {}
        self._thought_chars = 0
        self._is_restarted = False

    def look(self, chunk: Chunk, now: float) -> ClassifiedEvent:
        """Look at an event that has a part of an answer, or the end."""
        classified = ClassifiedEvent(chunk)
        try:
            texts = list(self._answers.texts(chunk.data)) if chunk.answer else []
        except UNREADABLE:
            self.is_over = True
            return classified
        if chunk.reasoning and not chunk.answer:
            self._separated()
        answers = [(place, answer) for place, text in texts if (answer := self._at(place).take(text, now))]
        is_other = chunk.answer and (not texts or chunk.refused or chunk.sound or bool(chunk.tools or chunk.names))
        all_texts = self._by_place.values()
        if is_other:
            for each in all_texts:
                each.other(now)
        if chunk.answer and not is_other and not any(each.has_begun for each in all_texts):
            is_thought = any(each.is_thinking for each in all_texts)
            classified.chunk = msgspec.structs.replace(chunk, answer=False, reasoning=is_thought)
            self._thought_chars += chunk.text_chars if is_thought else 0
        if chunk.done or (chunk.finished and self._is_one):
            is_cut_short = chunk.finish_reason in self._answers.cut_short
            ends = [(place, each.finish(now, is_cut_short=is_cut_short)) for place, each in self._by_place.items()]
            answers += [(place, answer) for place, answer in ends if answer]
            self.is_over = True
        self._complete(classified, answers)
        if any(each.was_answer for each in all_texts):
            classified.answer_chars, self._thought_chars = self._thought_chars, 0
        self.is_over = self.is_over or is_other or (self._is_one and any(each.is_over for each in all_texts))
        return classified

    def look_at_more(self, text: str, now: float) -> ClassifiedEvent:
        """Look at text of plain events, which go on with an answer."""
        answer = self._at(0).take(text, now)
        self.is_over = self._at(0).is_over
        classified = ClassifiedEvent(_MORE)
        self._complete(classified, [(0, answer)] if answer else [])
        return classified

    def undecided_since(self) -> float | None:
        """Return when text came that may still become a thought; None: there is no such text."""
        undecided = [each.began_at for each in self._by_place.values() if not each.is_thinking]
        return min((at for at in undecided if at is not None), default=None)

    @property
    def allows_plain(self) -> bool:
        """Whether text may pass without being parsed: the answer has begun, as far as is known."""
        return self._is_one and 0 in self._by_place and self._by_place[0].has_begun

    def _complete(self, classified: ClassifiedEvent, answers: Sequence[tuple[int, str]]) -> None:
        all_texts = self._by_place.values()
        classified.said = answers
        classified.is_later = any(each.is_found for each in all_texts)
        classified.is_restarted = classified.is_later and not self._is_restarted
        self._is_restarted = classified.is_later
        begun = [each.began_at for each in all_texts if each.has_begun and each.began_at is not None]
        classified.answer_at = min(begun, default=None)

    def _at(self, place: int) -> Thoughts:
        """Return the thoughts of a choice. The blocks and items of one answer are one text."""
        place = 0 if self._is_one else place
        thoughts = self._by_place.get(place)
        if thoughts is None:
            thoughts = self._by_place[place] = Thoughts()
        return thoughts

    def _separated(self) -> None:
        """Note that the server sends thoughts apart from the text: the text has none."""
        if not any(each.is_thinking for each in self._by_place.values()):
            self.is_over = True
            for each in self._by_place.values():
                each.separate()
