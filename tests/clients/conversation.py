"""The conversation that each program has with each vendor: ten turns, scripted in what the user says.

Runs under the client's own interpreter, so it needs the standard library alone. What a line of a turn does is in
``strict_vendors/script.py``.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

LAST = 10
PARALLEL, PICTURE, CUT = 4, 6, 8  # the turns with two calls at once, with a picture, and said twice
WRONG = 5  # the turn in which something goes wrong, where something does
BROKEN, BROKEN_CALL, UNFINISHED = "broken", "broken-call", "unfinished"  # what that is
SHORT, FILTERED = "short", "filtered"
_WRONG = {
    BROKEN: "cut: once {key}",
    BROKEN_CALL: "cut: once {key}",
    UNFINISHED: "cut: early {key}",
    SHORT: "length: 6 {key}",
    FILTERED: "",
}
_FILTER = "flagged|block|content|filter|safety|policy"
CITIES = ("Oslo", "Rome", "Lima", "Kyiv", "Bonn", "Bern", "Cairo", "Delhi", "Quito", "Paris", "Sofia")
LETTERS = 6000  # of a command's output in a long session
CUT_AFTER_S = 1.0  # by programs that wait for a whole answer; those that stream leave after its first words
STORY = "Once upon a time there was a race between two who both knew the way and neither of whom was late at all."

SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABOUT = "Tell the weather in a city."

Calls = Callable[[int], tuple[tuple[str, Any], tuple[str, Any]]]
Letters = Callable[[int], int]


@dataclass(frozen=True)
class Turn:
    """What a user says, and what the model says at the end of it: how much of the conversation it has seen.

    ``cut`` is said first, where it is not empty: the program leaves in the middle of the answer, and says ``text``.
    In a ``long`` session the model has seen what the program has kept; it has compacted by the last turn. So it is
    in one where something ``goes`` wrong, in turn ``WRONG``. Where other words than ``says`` may end it, ``ends`` is
    their pattern; ``shows`` is that of an error, in lower case, where one has to be shown. Other languages read both.
    """

    number: int
    text: str
    says: str
    picture: bool = False
    cut: str = ""
    long: bool = False
    goes: str = ""
    ends: str = ""
    shows: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it is the turn in which something goes wrong."""
        return bool(self.goes) and self.number == WRONG

    def ends_with(self, said: object) -> None:
        """Check the last words of the model.

        Raises:
            Lost: it says something else, as it has not seen all of the conversation.

        """
        words = str(said).strip()
        is_said = words == self.says if not self.ends else re.search(self.ends, words) is not None
        if self.shows or not is_said:
            raise Lost(f"it says {words[-300:]!r}, not {'how much it has kept' if self.long else self.says!r}")


class Lost(Exception):
    """The answer is not that of a model that has seen the whole conversation."""


class Unable(Exception):
    """The program does not have this conversation: it refuses by itself, and asks nobody."""


def forecast(city: str) -> str:
    """Tell the weather in a city; in so many letters, if they are named behind it."""
    name, _, letters = city.partition("/")
    return f"rain in {name}".ljust(int(letters or 0), ".")


@contextmanager
def left_by(kind: type[BaseException] | tuple[type[BaseException], ...]) -> Iterator[None]:
    """Expect that the block ends by ``kind``: the program has left the answer.

    Raises:
        Lost: it does not, so there was nothing to leave.

    """
    try:
        yield
    except kind:
        return
    raise Lost("the answer that was to be left came at once")


def weather(number: int) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """Return the two calls of one turn: the weather in two cities."""
    return ("weather", {"city": CITIES[number - 1]}), ("weather", {"city": CITIES[number]})


def turns(
    calls: Calls = weather,
    *,
    sees: bool = True,
    parallel: bool = True,
    long: bool = False,
    goes: str = "",
    letters: Letters = lambda _: LETTERS,
) -> list[Turn]:
    """Return the conversation; in each turn the tools that ``calls`` names are called.

    A model that ``sees`` nothing gets no picture, and one that calls a tool at a time calls them one after the other.
    In a ``long`` session commands print so many ``letters`` in each turn, until the model's context holds no more;
    nothing is left in the middle there, and nothing shown. What ``goes`` wrong does so once.
    """
    found = []
    for number in range(1, LAST + 1):
        (one, its), (other, others) = (
            (tool, _as_json(arguments, letters(number) if long else 0)) for tool, arguments in calls(number)
        )
        second = "call" if parallel and (number == PARALLEL or long) else "then"
        lines = (
            f"Turn {number}: do these two.",
            f"call: {one} {its}",
            f"{second}: {other} {others}",
            "recall: now",
        )
        pictures = 1 if number >= PICTURE and sees and not long else 0
        text, says = "\n".join(lines), f"turns {number}, results {2 * number}, pictures {pictures}"
        ends = shows = ""
        if long or goes:
            results = "1?[0-9]" if long and number == LAST else "[0-9]+"
            ends = f"turns [0-9]+, results {results}, pictures [0-9]+$"
        if goes and number == WRONG:
            wrong = _WRONG[goes].format(key=secrets.token_hex(4))
            if goes == BROKEN_CALL:
                text = "\n".join((lines[0], wrong, *lines[1:]))
            else:
                # Some programs say again with the next turn what was filtered.
                text = (
                    f"Turn {number}: tell a story.\n{wrong}\n{'recall: now' if goes == FILTERED else f'say: {STORY}'}"
                )
                says, ends = STORY, "." if goes == SHORT else f"{STORY[-40:]}$"
            shows = _FILTER if goes == FILTERED else ""
        found.append(
            Turn(
                number=number,
                text=text,
                says=says,
                picture=number == PICTURE and sees and not long,
                cut=f"Turn {number}: tell a story.\ncut: silent\nsay: {STORY}"
                if number == CUT and not (long or goes)
                else "",
                long=long,
                goes=goes,
                ends=ends,
                shows=shows,
            )
        )
    return found


def _as_json(arguments: Any, letters: int) -> str:
    found = json.dumps(arguments)
    if not letters:
        return found
    return re.sub(r'("city": "\w+)', rf"\1/{letters}", found.replace("printf '", f"printf '%0{letters}d "))


class Turns:
    """A conversation under way: who iterates over it has it, and where it failed is known."""

    def __init__(self, sees: bool, parallel: bool, long: bool, goes: str) -> None:
        self._model = {"sees": sees, "parallel": parallel, "long": long}
        self.goes = goes
        self.at = 0
        self._is_again = False
        self._lost = ""
        self._first: int | None = None  # how much was said before the first turn

    def __call__(self, calls: Calls, letters: Letters = lambda _: LETTERS, **model: bool) -> Iterator[Turn]:
        """Iterate over the conversation with other tools; ``model`` is what a program lets it do.

        Raises:
            Lost: at the end, if a turn was lost, or did not show what it has to.

        """
        self._lost = ""
        for turn in turns(calls, letters=letters, goes=self.goes, **self._model | model):
            self.at, self._turn, self._is_again = turn.number, turn, False
            yield turn
            if self._is_again:
                yield replace(turn, cut="")
        if self._lost:
            raise Lost(self._lost)

    def __iter__(self) -> Iterator[Turn]:
        return self(weather)

    @contextmanager
    def held(
        self,
        said: list[Any] | None = None,
        errors: type[Exception] | tuple[type[Exception], ...] = Lost,
        is_too_long: Callable[[Exception], bool] = lambda _: False,
    ) -> Iterator[None]:
        """Have a turn in the block. If it may be lost it is said again after it, once; what was filtered is left.

        So it is where something goes wrong, and ``said`` gets back what it was before; in a long session also when it
        ``is_too_long``, and all that was said before is forgotten.
        """
        said = [] if said is None else said
        before, turn = len(said), self._turn
        self._first = before if self._first is None else self._first
        try:
            yield
        except errors as why:
            if turn.long and not self._is_again and is_too_long(why):
                del said[self._first :]
                self._is_again = True
                return
            if self._is_again or not turn.is_wrong:
                raise
            del said[before:]
            told = f"{why}" if isinstance(why, Lost) else f"{type(why).__name__}: {why}"
            if not turn.shows:
                self._lost = f"turn {turn.number} was lost: {told}"
                self._is_again = True
            elif re.search(turn.shows, told.lower()) is None:
                self._lost = f"it does not show that it was filtered: {told}"

    def hold(self, calls: Calls, say: Callable[..., str], letters: Letters = lambda _: LETTERS) -> None:
        """Have it with a program: ``say`` takes a text, ``picture`` and ``leave``, and returns the last words.

        Raises:
            Lost: the program, or the conversation, has ended early; or, in the last turn, a turn was lost.

        """
        for turn in self(calls, letters):
            if turn.cut:
                say(turn.cut, leave=True)
            with self.held():
                turn.ends_with(say(turn.text, picture=turn.picture))


def as_data(*, sees: bool, parallel: bool, long: bool, goes: str) -> list[dict[str, Any]]:
    """Return the conversation as JSON, for programs in other languages."""
    return [asdict(turn) for turn in turns(sees=sees, parallel=parallel, long=long, goes=goes)]
