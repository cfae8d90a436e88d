"""What a stand-in answers: a function of the conversation and of how often it was asked, the same for all APIs.

Offered tools are called when the last turn is the user's: one, two in one answer when the text says "parallel", one and
then another when it says "twice"; after the results, text. A schema is filled. A text that says "do not call any tools", or
wants a summary or what follows an answer that broke off as Codex, Gemini CLI and Qwen Code do, has the last of these
lines said again. Lines of the last user's text say more:

    say: words                    answer this (JSON in quotes for several lines)
    call: tool {"its": "args"}    call this tool; several lines are parallel calls
    then: tool {"its": "args"}    call this one after the results; several lines, one after the other
    data: {"the": "answer"}       the answer that is asked for as JSON
    think: thoughts               what a thinking model thinks; a second line is thought after its words, before its calls
    beside: words                 what is said beside calls
    seal: thoughts                thoughts are told sealed alone, where the vendor has that (Claude's redacted_thinking)
    echo: body | fields | system  what arrived
    fail: 500                     fail with this status; ``fail: 500 times 1 KEY`` only the first time with this word
    cut: now                      break off in the middle; ``cut: once KEY`` only the first time with this word
    cut: now at gpt-4o            only where this model answers; ``fail: 500 at gpt-4o`` likewise; several lines are several
    cut: silent                   say nothing more from the middle on, and wait until who asked leaves
    cut: early KEY                end the stream in the middle, without its last events; only the first time with this word
    slow: 2                       begin after so many seconds
    rest: 2                       say nothing for so many seconds in the middle of a stream
    length: 6 KEY                 end at so many tokens as if no more fit; only the first time with this word
    search: words                 search the web for them, where a search of the vendor's is offered, and cite two pages
    shell: command                have this command run, where a shell is offered: by the vendor, or by who asked
    recall: now                   say how much of the conversation arrived, or was kept: its turns ("Turn 1: ..."),
                                  results of tools, and pictures
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from strict_vendors.schemas import sample

Json = dict[str, Any]
Finish = Literal["stop", "length", "tool_calls", "stop_sequence"]

_PIECE = re.compile(r"\s*\S+\s*|\s+")
_LETTERS_OF_A_TOKEN = 4
_LINE = re.compile(r"^\s*(?:Turn \d+|call|then|recall|say):.*$", re.MULTILINE)
_REMINDERS = re.compile(r"(?:\s*<system-reminder>.*?</system-reminder>)+\s*", re.DOTALL)
_SUMMARY = re.compile(
    r"\bdo not (?:call|use) any tools\b|\b(?:produce|generate|evaluate)\b[^.\n]{0,20}<state_snapshot>"
    r"|\bCONTEXT CHECKPOINT COMPACTION\b|<previous_response_suffix>",
    re.IGNORECASE,
)
THOUGHTS = "Let me think about it."


class Broken(Exception):
    """The text asks for a failure with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"failed with {status}, as asked for")
        self.status = status


class Tool(msgspec.Struct, frozen=True):
    """A tool that may be called; a ``free`` one takes any text, no object."""

    name: str
    schema: Json
    free: bool = False


class Said(msgspec.Struct, frozen=True):
    """One turn of a conversation: words, calls (how many) or the result of one."""

    who: Literal["user", "assistant", "tool"]
    text: str = ""
    calls: int = 0
    media: int = 0

    @property
    def is_users(self) -> bool:
        """Whether the user said it.

        Pydantic-ai has the user say the model's thoughts that Messages would not take, and the gateway instructions
        among messages, where a vendor takes one system prompt. Claude Code adds reminders.
        """
        is_from_elsewhere = self.text.startswith(("<assistant_thinking>", "<system>"))
        return self.who == "user" and not is_from_elsewhere and _REMINDERS.fullmatch(self.text) is None


def asks_for_summary(text: str) -> bool:
    """Whether a text wants words alone, with which the conversation goes on in place of what was said before."""
    return _SUMMARY.search(text) is not None


class Asked(msgspec.Struct, frozen=True):
    """A request as the script reads it."""

    model: str
    body: Any
    turns: Sequence[Said]
    system: str = ""
    stream: bool = False
    tools: Sequence[Tool] = ()
    choice: str = "auto"  # "none", "required", or the name of a tool
    parallel: bool = True
    schema: Json | None = None  # of the answer; ``{}`` is any JSON
    thinks: bool = False
    stop: Sequence[str] = ()
    most: int | None = None  # tokens of the answer, thoughts and all
    begun: str = ""  # the beginning of the answer, as the last turn: only what follows is said, without new thoughts
    searches: bool = False  # whether a search is offered that the vendor runs
    shell: Literal["", "client", "vendor"] = ""  # who runs the commands of a shell that is offered

    @property
    def text(self) -> str:
        """What the user said last."""
        return next((turn.text for turn in reversed(self.turns) if turn.is_users), "")

    @property
    def since(self) -> Sequence[Said]:
        """What was said after that."""
        last = max((place for place, turn in enumerate(self.turns) if turn.is_users), default=-1)
        return self.turns[last + 1 :]

    @property
    def rounds(self) -> int:
        """How often tools were called since."""
        return sum(bool(turn.calls) for turn in self.since)

    @property
    def results(self) -> list[str]:
        """The results of the last calls."""
        found: list[str] = []
        for turn in reversed(self.since):
            if turn.who != "tool":
                break
            found.append(turn.text)
        return found[::-1]

    @property
    def is_summary(self) -> bool:
        """Whether the conversation is to be summed up."""
        return self.choice == "auto" and asks_for_summary(self.text)

    def said(self, word: str) -> str | None:
        """Return what stands after ``word:`` in the last user's text."""
        return next(iter(self.all_said(word)), None)

    def all_said(self, word: str) -> list[str]:
        """Return it of each line that has it."""
        return [found.strip() for found in re.findall(rf"^\s*{word}:(.*)$", self.text, re.MULTILINE)]

    def said_here(self, word: str) -> str | None:
        """Return it of the first line that is for this model."""
        lines = (line.partition(" at ") for line in self.all_said(word))
        return next((told for told, _, model in lines if model in {"", self.model}), None)


class Page(msgspec.Struct, frozen=True):
    """A page that a search has found, and the words of the answer that rest on it."""

    url: str
    title: str
    words: str = ""  # as they are told
    begin: int = 0  # their place in the text
    end: int = 0


class Call(msgspec.Struct, frozen=True):
    """A call of a tool; ``arguments`` is JSON, or any text of a tool that takes it."""

    name: str
    arguments: str
    free: bool = False

    @property
    def object(self) -> Json:
        """The arguments as APIs have them that tell an object; none of those that are no JSON."""
        try:
            return dict(json.loads(self.arguments))
        except ValueError:
            return {}

    @property
    def pieces(self) -> list[str]:
        """The arguments as they are streamed: cut in the middle of words."""
        return [self.arguments[at : at + 7] for at in range(0, len(self.arguments), 7)]


class Given(msgspec.Struct, frozen=True):
    """One answer: thoughts, words and calls, in this order; any may be missing."""

    text: str = ""
    thoughts: str = ""
    later: str = ""  # further thoughts, between the words and the calls
    sealed: bool = False  # the thoughts are told to nobody
    calls: Sequence[Call] = ()
    searched: str = ""  # what the vendor has searched for
    pages: Sequence[Page] = ()  # what it has found, and cites
    command: str = ""  # what is run in a shell
    finish: Finish = "stop"
    stopped_by: str | None = None
    cut: bool | Literal["silent", "early"] = False
    tokens_in: int = 0

    @property
    def pieces(self) -> list[str]:
        """The text as it is streamed, word by word."""
        return _PIECE.findall(self.text)

    @property
    def thought_pieces(self) -> list[str]:
        """The thoughts as they are streamed."""
        return _PIECE.findall(self.thoughts)

    @property
    def tokens_of_thoughts(self) -> int:
        """How many tokens were thought."""
        return len(self.thought_pieces) + len(pieces_of(self.later))

    @property
    def tokens_out(self) -> int:
        """How many tokens were thought, said and passed to tools."""
        return self.tokens_of_thoughts + len(self.pieces) + sum(len(call.pieces) for call in self.calls)


def pieces_of(text: str) -> list[str]:
    """Return a text as it is streamed, word by word."""
    return _PIECE.findall(text)


def tokens_of(body: Any) -> int:
    """Return about how many tokens some JSON is; pictures and other files in it count a few each, not their letters."""
    return -(-_letters(body) // _LETTERS_OF_A_TOKEN)


def _letters(body: Any) -> int:
    if isinstance(body, str):
        return len(body) if not body.startswith("data:") else 340
    if isinstance(body, Mapping):
        return sum(340 if name in {"data", "file_data"} else 2 + _letters(entry) for name, entry in body.items())
    if isinstance(body, list):
        return sum(map(_letters, body))
    return 1


def answered(asked: Asked, failures: dict[str, int]) -> Given:
    """Return the answer; ``failures`` keeps how often each word was met.

    Raises:
        Broken: the text asks for a failure.

    """
    if asked.begun:
        return _gone_on(asked, failures)
    if (fails := asked.said_here("fail")) is not None:
        status, *often = fails.split()
        if not often or not _met(failures, f"fail {often[-1]}", int(often[1])):
            raise Broken(int(status))
    cut = asked.said_here("cut")
    is_cut: bool | Literal["silent", "early"] = False
    if cut is not None:
        is_cut = "silent" if cut == "silent" else cut == "now" or not _met(failures, f"cut {cut}", 1)
    if is_cut and cut is not None and cut.startswith("early "):
        is_cut = "early"
    thoughts, later, *_ = [*(asked.all_said("think") or [THOUGHTS]), ""] if asked.thinks else ["", ""]
    tokens_in = max(1, tokens_of(asked.system) + sum(tokens_of(turn.text) + 85 * turn.media for turn in asked.turns))
    calls = _calls(asked)
    given = Given(thoughts=thoughts, calls=calls, cut=is_cut, tokens_in=tokens_in, finish="tool_calls")
    given = msgspec.structs.replace(given, sealed=asked.thinks and asked.said("seal") is not None)
    if asked.searches and not asked.since and (searched := asked.said("search")) is not None:
        given = msgspec.structs.replace(given, searched=searched, pages=_pages(searched))
    if asked.shell and not asked.since and (command := asked.said("shell")) is not None:
        given = msgspec.structs.replace(given, command=command)
    if given.command and asked.shell == "client":
        given = msgspec.structs.replace(given, text=asked.said("beside") or "", finish="stop")
    elif calls:
        given = msgspec.structs.replace(given, text=asked.said("beside") or "", later=later)
    else:
        given = msgspec.structs.replace(given, **_ended(_text(asked), asked))
    most = asked.most
    if (length := asked.said("length")) is not None and not _met(failures, f"length {length}", 1):
        most = int(length.split()[0])
    return _cited(_bounded(given, most))


def _pages(searched: str) -> list[Page]:
    """Return what a search finds: two pages, the second with letters that are more than a byte each."""
    place = re.sub(r"\W+", "-", searched.lower()).strip("-") or "nothing"
    return [
        Page(f"https://weather.example/{place}", f"Weather: {searched}"),
        Page(f"https://facts.example/{place}?lang=nb", f"Været — {searched}"),
    ]


def _cited(given: Given) -> Given:
    """Give each page the words of the answer that it is cited for: half of them each."""
    if not given.pages:
        return given
    half = len("".join(given.pieces[: len(given.pieces) // 2 or 1]))
    places = ((0, half), (half, len(given.text)))
    pages = [
        msgspec.structs.replace(page, words=given.text[begin:end], begin=begin, end=end)
        for page, (begin, end) in zip(given.pages, places, strict=True)
    ]
    return msgspec.structs.replace(given, pages=[page for page in pages if page.words])


def _gone_on(asked: Asked, failures: dict[str, int]) -> Given:
    """Return what follows the beginning of an answer; another beginning than its own is not gone on with."""
    plain = msgspec.structs.replace(asked, begun="", turns=asked.turns[:-1], thinks=False, tools=(), most=None)
    given = answered(plain, failures)
    given = msgspec.structs.replace(given, text=given.text.removeprefix(asked.begun))
    return _bounded(given, asked.most)


def _met(failures: dict[str, int], word: str, often: int) -> bool:
    """Count a word; return whether it was met as often as that before."""
    failures[word] = failures.get(word, 0) + 1
    return failures[word] > often


def _calls(asked: Asked) -> list[Call]:
    if not asked.tools or asked.choice == "none" or asked.is_summary:
        return []
    by_name = {tool.name: tool for tool in asked.tools}
    wanted = [_read(line, by_name) for line in asked.all_said("call")]
    later = [_read(line, by_name) for line in asked.all_said("then")]
    first = by_name.get(asked.choice) or asked.tools[0]
    is_told = any(asked.said(word) is not None for word in ("say", "echo", "call", "then", "data", "recall", "search"))
    forced = asked.choice not in {"auto", "none"}
    match asked.rounds:
        case 0 if wanted:
            calls = [call for call in wanted if call]
        case 0 if forced:
            calls = [Call(first.name, asked.said("data") or _sampled(first), first.free)]
        case 0 if not is_told and asked.schema is None and asked.text:
            calls = [_call(first)]
            if re.search(r"\bparallel\b", asked.text):
                calls.append(_call(asked.tools[1] if len(asked.tools) > 1 else first))
        case 1 if not is_told and re.search(r"\btwice\b", asked.text):
            calls = [_call(asked.tools[1] if len(asked.tools) > 1 else first)]
        case number if 1 <= number <= len(later):
            calls = [call for call in later[number - 1 : number] if call]
        case _:
            calls = []
    if forced and asked.choice != "required":
        calls = [call for call in calls if call.name == asked.choice]
    return calls if asked.parallel else calls[:1]


def _read(line: str, tools: Mapping[str, Tool]) -> Call | None:
    name, _, arguments = line.partition(" ")
    tool = tools.get(name)
    if tool is None:
        return None
    if tool.free and arguments.startswith('{"input": "'):  # as where it is translated to one that takes an object
        arguments = json.loads(arguments)["input"]
    return Call(name, arguments or _sampled(tool), tool.free)


def _call(tool: Tool) -> Call:
    return Call(tool.name, _sampled(tool), tool.free)


def _sampled(tool: Tool) -> str:
    if tool.free:
        return f"text for {tool.name}"
    return json.dumps(sample({**tool.schema, "type": "object"}, least=True))  # also where the schema has no type


def _text(asked: Asked) -> str:
    if asked.schema is not None:
        later = asked.all_said("then")[asked.rounds - 1 : asked.rounds] if asked.rounds else []
        mended = [arguments for _, _, arguments in (line.partition(" ") for line in later) if arguments]
        return [*mended, asked.said("data") or json.dumps(sample(asked.schema))][0]
    if asked.is_summary:
        told = ("\n".join(_LINE.findall(turn.text)) for turn in reversed(asked.turns) if turn.is_users)
        return next(filter(None, told), "Nothing was said.")
    if (words := asked.said("say")) is not None:
        return str(json.loads(words)) if words.startswith('"') else words
    if asked.said("recall") is not None:
        return _recalled(asked.turns)
    if asked.results:
        return f"The tools said: {'; '.join(asked.results)}"
    if (echo := asked.said("echo")) is not None:
        return json.dumps({"fields": sorted(asked.body), "system": asked.system}.get(echo, asked.body), sort_keys=True)
    if (media := sum(turn.media for turn in asked.turns if turn.who == "user")) and asked.turns[-1].media:
        return f"I was shown {asked.turns[-1].media} of {media}."
    return f"Hello from {asked.model}, you said: {asked.text[:200]}"


def _recalled(turns: Sequence[Said]) -> str:
    said = {number for turn in turns if turn.who == "user" for number in re.findall(r"\bTurn (\d+):", turn.text)}
    results = sum(turn.who == "tool" for turn in turns)
    pictures = sum(turn.media for turn in turns if turn.who == "user")
    return f"turns {len(said)}, results {results}, pictures {pictures}"


def _ended(text: str, asked: Asked) -> dict[str, Any]:
    for stop in asked.stop:
        if stop in text:
            return {"text": text.partition(stop)[0], "finish": "stop_sequence", "stopped_by": stop}
    return {"text": text, "finish": "stop"}


def _bounded(given: Given, most: int | None) -> Given:
    """Cut an answer off where it is longer than asked for."""
    if most is None or given.tokens_out <= most:
        return given
    thoughts = given.thought_pieces[:most]
    words = given.pieces[: most - len(thoughts)]
    return msgspec.structs.replace(
        given, thoughts="".join(thoughts), later="", text="".join(words), calls=(), finish="length"
    )
