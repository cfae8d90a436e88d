"""What came of all conversations: text for a terminal, JSON, and docs/reference/programs.md."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import Literal

import msgspec

from tests.clients.conversation import WRONG
from tests.clients.gateways import refused_in
from tests.clients.mixed import CONTEXT, MIXES, MOST_REFUSED
from tests.clients.places import DIRECTLY, EVERYWHERE, MIXED, SETUPS, setups_of

Verdict = Literal["works", "unheard", "refused", "not possible", "defect", "other defect", "none", "not had"]

# What is another one in each answer.
_NUMBER = re.compile(r"\b(req_|resp_|msg_|toolu_|call_|fc_|rs_)\w{8,}|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")

_MIXES = {mix.name: mix for mix in MIXES}
MARKS: dict[Verdict, str] = {
    "works": "✓",
    "unheard": "!",
    "refused": "r",
    "not possible": "n",
    "defect": "✗",
    "other defect": "✗",
    "none": "-",
    "not had": ".",
}


class Talked(msgspec.Struct, frozen=True):
    """What came of one conversation: ``why`` is empty if it came to its end, else ``turn`` is where it ended."""

    client: str
    version: str
    api: str
    case: str
    target: str  # place|setup
    turn: int
    refused: bool
    why: str
    began: float
    ended: float
    refusals: tuple[str, ...] = ()  # what stand-ins refused meanwhile, also where another one answered

    @property
    def place(self) -> str:
        """The vendor and the model."""
        return self.target.partition("|")[0]

    @property
    def setup(self) -> str:
        """What stands before them."""
        return self.target.partition("|")[2]

    @property
    def day(self) -> dt.date:
        """When it was had."""
        return dt.datetime.fromtimestamp(self.ended, dt.UTC).date()

    @property
    def row(self) -> tuple[str, str]:
        """The program, and its way to talk."""
        return self.client, self.case


class Matrix:
    """Conversations, in the order in which they were had."""

    def __init__(self, setups: Sequence[str], missing: Sequence[str] = ()) -> None:
        self._setups = setups
        self._found: dict[tuple[tuple[str, str], str, str], Talked] = {}
        self._crashes: list[tuple[str, str]] = []
        self._missing = missing
        self.seconds = 0.0

    def add(self, talks: Iterable[Talked]) -> None:
        """Add what came of some."""
        self._found.update({(talk.row, talk.place, talk.setup): talk for talk in talks})

    def crash(self, client: str, why: str) -> None:
        """Note that something went wrong beside them."""
        self._crashes.append((client, why))

    def verdict(self, row: tuple[str, str], place: str, setup: str) -> Verdict:
        """Say what a cell is: works, also if something was refused unheard; refused in its first error; or a defect.

        What is not possible at the vendor either is none.
        """
        talk = self._found.get((row, place, setup))
        if talk is None:
            others = any((row, place, other) in self._found for other in (*SETUPS[1:], MIXED))
            return "none" if setup == DIRECTLY and others else "not had"
        if not talk.why:
            return "unheard" if talk.refusals else "works"
        if setup == DIRECTLY or talk.why.startswith("Unable: "):
            return "not possible"
        directly = self._found.get((row, place, DIRECTLY)) or self._lost_alike(row, place)
        if directly is not None:
            return "not possible" if directly.why and directly.turn <= talk.turn else "defect"
        return "refused" if talk.refused and talk.turn <= 1 else "other defect"

    def _lost_alike(self, row: tuple[str, str], place: str) -> Talked | None:
        """Return the conversation that loses its turn in this API directly, where ``place`` does not have the API."""
        kind = _MIXES[place].vendor if place in _MIXES else ""
        alike = (
            self._found.get((row, mix.name, DIRECTLY)) for mix in MIXES if mix.vendor == kind and mix.name != place
        )
        return next((talk for talk in alike if talk is not None and talk.why and talk.turn >= WRONG), None)

    @property
    def defects(self) -> list[Talked]:
        """What works at the vendor and not through the gateway, and what fails there later than in its first error."""
        return [talk for talk in self._found.values() if self._of(talk).endswith("defect")]

    def asked_again(self, log: Path) -> list[str]:
        """Return what is wrong where no call may be had, by the gateway's log: programs ask again and again."""
        places = {mix.name for mix in MIXES if mix.show and mix.name.replace(" ", "-") == log.parent.name}
        most = MOST_REFUSED * sum(talk.place in places for talk in self.talks)
        count = refused_in(log) if places else 0
        return [f"it was asked {count} times, not at most {most}"] if count > most else []

    @property
    def unheard(self) -> list[Talked]:
        """What worked although a stand-in refused something: another answered, or it was asked again."""
        return [talk for talk in self._found.values() if self._of(talk) == "unheard"]

    @property
    def failed(self) -> bool:
        """Is anything wrong?"""
        return bool(self.defects or self._crashes)

    @property
    def talks(self) -> list[Talked]:
        """All that were had."""
        return list(self._found.values())

    def as_json(self) -> object:
        """Return everything, for scripts."""
        return {
            "talks": [{**msgspec.structs.asdict(talk), "verdict": self._of(talk)} for talk in self._found.values()],
            "crashes": self._crashes,
            "missing": self._missing,
            "seconds": self.seconds,
        }

    def as_text(self) -> str:
        """Return what went wrong, and the table."""
        lines = [f"{self._of(talk):12}  {_named(talk)}: {talk.why}" for talk in self._found.values() if talk.why]
        lines += [f"{'unheard':12}  {_named(talk)}: {_counted(talk.refusals, 160)}" for talk in self.unheard]
        lines += [f"CRASH  {client}: {why}" for client, why in self._crashes]
        lines += [f"no stand-in of {vendor}" for vendor in self._missing]
        lines += ["", "Four marks a cell: " + ", ".join(self._setups)]
        width = max((len(" ".join(row)) for row in self._rows), default=0)
        for place in self._places:
            lines.append(place)
            lines += [f"  {' '.join(row):{width}}  {self._cell(row, place)}" for row in self._rows]
        refusals = sum(len(talk.refusals) for talk in self._found.values() if talk.setup != DIRECTLY)
        lines.append(
            f"{len(self._found)} conversations in {self.seconds:.0f} s, {len(self.defects)} defects,"
            f" {refusals} refusals behind gateways"
        )
        return "\n".join(lines)

    def as_markdown(self) -> str:
        """Return the page."""
        lines = [*_HEAD, *self._situations()]
        for client in dict.fromkeys(client for client, _ in self._rows):
            rows = [row for row in self._rows if row[0] == client]
            talks = [talk for talk in self._found.values() if talk.client == client]
            versions = dict.fromkeys(talk.version for talk in talks)
            lines += [f"## {client}", "", f"Version {', '.join(versions)}.", ""]
            lines += [_line("vendor", "model", *(case for _, case in rows), "tried"), _line(*["---"] * (3 + len(rows)))]
            days: dict[str, list[dt.date]] = {}
            for talk in talks:
                days.setdefault(talk.place, []).append(talk.day)
            for place in filter(days.__contains__, self._places):
                vendor, _, model = place.partition(" ")
                tried = " to ".join(dict.fromkeys((f"{min(days[place])}", f"{max(days[place])}")))
                lines.append(_line(vendor, f"`{model}`", *(self._cell(row, place) for row in rows), tried))
            lines.append("")
        lines += [*self._told_unheard(), *self._told()]
        return "\n".join(lines)

    def _situations(self) -> list[str]:
        """Return a table of programs and of what may happen in a session: how often they went on."""
        kinds = list(dict.fromkeys(mix.vendor for mix in MIXES))
        went: dict[tuple[str, str], list[bool]] = {}
        for (row, place, setup), talk in self._found.items():
            if setup == MIXED:
                is_well = self._of(talk) in {"works", "unheard"}
                went.setdefault((row[0], _MIXES[place].vendor), []).append(is_well)
        lines = ["## Sessions in which something happens", "", *_HEAD_OF_SITUATIONS]
        lines += [_line("program", *kinds), _line("---", *["---"] * len(kinds))]
        for client in dict.fromkeys(client for client, _ in went):
            cells = (went.get((client, kind), []) for kind in kinds)
            lines.append(_line(client, *(f"{sum(each)} of {len(each)}" if each else "." for each in cells)))
        return [*lines, ""] if went else []

    def _told_unheard(self) -> list[str]:
        some: dict[tuple[str, str, str], list[Talked]] = {}
        for talk in self.unheard:
            some.setdefault((*talk.row, _counted(map(shorter, talk.refusals), 400)), []).append(talk)
        lines = [
            f"- **{client}, {case}** ({', '.join(f'{talk.place} {talk.setup}' for talk in talks)}): {told}"
            for (client, case, told), talks in some.items()
        ]
        return ["## Refused at a stand-in, and nobody heard of it", "", *lines, ""] if lines else []

    def _told(self) -> list[str]:
        lines: list[str] = []
        for title, verdicts in (
            ("Refused in the first error, in these words", ("refused",)),
            ("Not possible at the vendor directly, or refused by the program itself", ("not possible",)),
            ("Defects", ("defect", "other defect")),
        ):
            some: dict[tuple[str, str, str], list[Talked]] = {}
            for talk in self._found.values():
                if self._of(talk) in verdicts:
                    some.setdefault((*talk.row, shorter(talk.why)), []).append(talk)
            if some:
                lines += [f"## {title}", "", *(_IGNORED if "not possible" in verdicts else ())]
                for (client, case, why), talks in some.items():
                    where = ", ".join(dict.fromkeys(f"{talk.place} {talk.setup}, turn {talk.turn}" for talk in talks))
                    lines.append(f"- **{client}, {case}** ({where}): {why}")
                lines.append("")
        return lines

    def _of(self, talk: Talked) -> Verdict:
        return self.verdict(talk.row, talk.place, talk.setup)

    def _cell(self, row: tuple[str, str], place: str) -> str:
        setups = setups_of(_MIXES[place]) if place in _MIXES else self._setups
        return "".join(MARKS[self.verdict(row, place, setup)] for setup in setups)

    @property
    def _rows(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys(row for row, _, _ in self._found))

    @property
    def _places(self) -> list[str]:
        seen = {place for _, place, _ in self._found}
        return [place.name for place in EVERYWHERE if place.name in seen]


def page_of(talks: Iterable[Talked]) -> str:
    """Return the page of conversations, programs in alphabetical order."""
    matrix = Matrix(SETUPS)
    matrix.add(in_order(talks))
    return matrix.as_markdown()


def in_order(talks: Iterable[Talked]) -> list[Talked]:
    """Return conversations in the order of the page; those of models that are no longer tried are left out."""
    cells = [(place.name, setup) for place in EVERYWHERE for setup in setups_of(place)]
    order = {cell: number for number, cell in enumerate(cells)}
    had = [talk for talk in talks if (talk.place, talk.setup) in order]
    return sorted(had, key=lambda talk: (talk.client, talk.case, order[talk.place, talk.setup]))


def _named(talk: Talked) -> str:
    return f"{talk.client}: {talk.case} ({talk.place} {talk.setup}), turn {talk.turn}"


def _counted(refusals: Iterable[str], width: int) -> str:
    """Return what was refused, and how often."""
    return ", ".join(f"{shorten(words, width)} ({count})" for words, count in Counter(refusals).items())


def shorter(why: str) -> str:
    """Return a failure as one line of a page; one that is already stays as it is."""
    plain = _NUMBER.sub(lambda found: f"{found[1] or ''}…", why)
    plain = re.sub(r"\w+\.\.\.", "…", plain)  # what a program has cut within a word
    plain = re.sub(r"(?<!\\)\|", r"\\|", plain)
    return shorten(plain.replace("<", "&lt;").replace("`", "'"), 400, placeholder=" …")


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


_HEAD = (
    "# Programs and vendors",
    "",
    "**Does a program that works at a vendor also work through the gateway?** Real programs, with nothing changed but",
    "address and key, talk to strict stand-ins of vendors (`python -m strict_vendors` serves them): they refuse",
    "what the vendor refuses, in its words. Each conversation has ten turns. In each a tool is called twice, once both",
    "at the same time. One turn has a picture; one is left in the middle of its answer, and said again. After each the",
    "model says how much of the conversation it has seen. A model without eyes gets no picture; aider, which has no",
    "tools, changes a file in each turn; instructor refuses the first answer of each, and asks again.",
    "",
    "Made by `make test WHAT=programs`; *tried* is on which days a row's cells were. Each cell has four marks:",
    "",
    *(
        f"{number}. {said}"
        for number, said in enumerate(
            (
                "*directly*: the program at the vendor.",
                "*alone*: a gateway before this vendor alone.",
                "*raced with its like*: a gateway races two of this vendor; what one keeps, the other does not know.",
                "*raced with another API*: a gateway races it with Anthropic's Messages (Anthropic with OpenAI).",
            ),
            1,
        )
    ),
    "",
    "A row of several vendors has one mark, of the gateway before them. *four-apis* is a model whose four deployments",
    "race, each in its API: chat completions (Mistral), Messages (Anthropic), Responses (OpenAI) and Google's; ! is",
    "also who is asked in less than half of the calls. In *change* the second is the first one's fallback: the first",
    "answers 503 from between a call and its result in the second turn, till the fifth, and the second from within",
    "the sixth on, so that the conversation changes its vendor twice, each time in the middle of a tool's call.",
    f"In *small-context* the vendor's models hold {CONTEXT:,} tokens, and commands print much: agents are refused what",
    "they do not hold, compact and go on. In *stated-context* the gateway knows that, and refuses by itself. Where the",
    "key is wrong (*wrong-key*) or its dollars are spent (*spent-limit*), a program has to stop, and to show why.",
    "The dollars are those of a limit in all: at one of a day opencode waits for the next, as `retry-after` tells it.",
    "",
    "Rows of one vendor in which something goes wrong, once, in the fifth turn, have two marks: directly, and behind a",
    "gateway. *broken* is an answer whose connection is reset in the middle, *broken-call* one that is reset within a",
    "tool's call, *unfinished* a stream that ends without its last events, *short* an answer that ends for its",
    "length; *filtered* is a prompt that is refused for its content, which a program has to show. A turn that is lost",
    "there is n, if it is lost directly, too, at this vendor or at the one that has the API.",
    "",
    "✓ works · ! works, though a stand-in refused something: another one answered, or it was asked again (below in its",
    "words; none is the aim) · r refused in the first error, which says why · n not possible at the vendor either, or",
    "refused by the program itself · ✗ a defect · \\- the vendor does not have this API · . not tried lately",
    "",
    "What has a point, or no row, was left out for want of time: all of it takes hours.",
    "",
)

_HEAD_OF_SITUATIONS = (
    "Behind a gateway, in how many of the sessions that were tried the program went on (or, where no call may be had,",
    "stopped and showed why), in all of its APIs and at all of these vendors; the rows below have each. In those of",
    "*four-apis* and *change* it also sends a screenshot, and leaves an answer in the middle.",
    "",
)

_IGNORED = (
    "*Lost* is what the vendor takes and does not look at: vLLM, llama.cpp and Ollama ignore the `thread` with which",
    "Anthropic's runner of tools names the conversation so far (a gateway says that there are none, and the runner",
    "sends the whole conversation), and Ollama ignores `previous_response_id`. *Unauthorized* are keys in `x-api-key`,",
    "which vLLM and OpenRouter do not read. The AI SDK does not take thoughts without a signature in a whole answer.",
    "",
)

assert len(SETUPS) == 4
