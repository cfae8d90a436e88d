"""Models of several vendors: four that race, each in an API of its own, and two of which one fails in the middle; and
of one vendor, with a context that a session outgrows, or where something goes wrong in one turn: as at it directly.

Of two, the first has no room from within its second turn to its fifth, so that the second goes on with a conversation
that it has not begun, between a call and its result; from within the sixth turn on, it is the other way round.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from strict_vendors import Breaks, Refused, Reply, Served
from tests.clients.conversation import BROKEN, BROKEN_CALL, FILTERED, SHORT, UNFINISHED, WRONG
from tests.clients.targets import GATEWAY_KEY, sha256

Json = dict[str, Any]

# What programs ask for, where they may choose: a name that they know, and beside it others for small things.
NAMES = {"chat": "gpt-5.5", "responses": "gpt-5.5", "messages": "claude-opus-5-5", "gemini": "gemini-3.8-flash"}
BESIDE = (
    *("claude-haiku-5-5", "claude-haiku-4-5", "claude-haiku-4-5-20251001", "claude-sonnet-5-5"),
    *("gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-3.1-flash-lite", "gemini-3-flash-preview"),
)
_TURN = re.compile(rb"Turn (\d+):")
_FAILS = {"first": range(2, 6), "second": range(6, 11)}


class Part(msgspec.Struct, frozen=True):
    """One vendor's model, in the one API that it is asked in."""

    vendor: str
    model: str
    api: str

    @property
    def provider(self) -> Json:
        """What a gateway is told of the provider."""
        return {"preset": self.vendor, "apis": [self.api]}


PARTS = (
    Part("mistral", "mistral-large-latest", "chat"),
    Part("anthropic", "claude-opus-5-5", "messages"),
    Part("openai", "gpt-5.5", "responses"),
    Part("google", "gemini-3.8-flash", "gemini"),
)
# Those that change to one of them.
GROQ, XAI = Part("groq", "openai/gpt-oss-120b", "chat"), Part("xai", "grok-4.5", "chat")
DEEPSEEK = Part("deepseek", "deepseek-v4-pro", "chat")


class Mix(msgspec.Struct, frozen=True):
    """What stands behind one model: all of them race, or the second is the first one's fallback.

    ``context`` is how many tokens the models hold, if fewer than they really do: then sessions are long. If the gateway
    lets no call pass, programs ``show`` one of these: their own words for that, or the gateway's.
    """

    vendor: str
    parts: tuple[Part, ...]
    context: int = 0
    show: tuple[str, ...] = ()
    sees: bool = True
    parallel: bool = True

    @property
    def races(self) -> bool:
        """Whether all are asked at once."""
        return self.vendor == RACE

    @property
    def is_long(self) -> bool:
        """Whether sessions outgrow the model's context."""
        return self.context > 0

    def stopped(self, why: str, turn: int) -> str:
        """Return what is wrong with the end of a conversation in which no call may pass: nothing, if it shows why."""
        if turn <= 1 and any(words in why for words in self.show):
            return ""
        return f"it ended in turn {turn}, and does not show {' or '.join(self.show)}: {why}"

    @property
    def goes(self) -> str:
        """What goes wrong in one turn, if something does."""
        return self.vendor if self.vendor in _GOES else ""

    @property
    def holds(self) -> int:
        """How many tokens a stand-in's models hold; 0: as many as they really do, so that only the gateway refuses."""
        return 0 if self.vendor == STATED else self.context

    @property
    def model(self) -> str:
        """Who they are."""
        return (", " if self.races else " then ").join(part.vendor for part in self.parts)

    @property
    def name(self) -> str:
        """Both, as a row of the page has them."""
        return f"{self.vendor} {self.model}"

    def seldom(self, asked: Mapping[str, int]) -> list[str]:
        """Tell of those of a race that were asked in less than half of the calls: something keeps them out of it."""
        most = max(asked.values(), default=0)
        seldom = [part.vendor for part in self.parts if self.races and 2 * asked.get(part.vendor, 0) < most]
        return [f"{vendor}: asked {asked.get(vendor, 0)} times of {most}" for vendor in seldom]


RACE, CHANGE, SMALL, STATED = "four-apis", "change", "small-context", "stated-context"
_GOES = (BROKEN, BROKEN_CALL, UNFINISHED, SHORT, FILTERED)
UNKNOWN, SPENT = "wrong-key", "spent-limit"
MOST_REFUSED = 9  # requests of a conversation that is not to be had: Codex asks again and again after a 401
CONTEXT = 30_000
MIXES = (
    Mix(RACE, PARTS),
    *(Mix(CHANGE, pair) for pair in itertools.permutations(PARTS, 2)),
    Mix(CHANGE, (GROQ, PARTS[0]), sees=False),
    Mix(CHANGE, (XAI, PARTS[1])),
    *(Mix(CHANGE, pair, sees=False) for pair in ((DEEPSEEK, PARTS[1]), (PARTS[2], DEEPSEEK), (DEEPSEEK, PARTS[3]))),
    *(Mix(SMALL, (part,), CONTEXT) for part in PARTS),
    Mix(UNKNOWN, PARTS[2:3], show=("unknown or revoked gateway key", "Invalid API key")),
    Mix(SPENT, PARTS[2:3], show=("usd_total", "Quota exceeded", "exhausted your daily quota")),
    *(Mix(goes, (part,)) for goes in _GOES for part in (PARTS[1:] if goes == FILTERED else PARTS)),
    Mix(STATED, PARTS[2:3], 3 * CONTEXT // 4),  # what seems a third too long is still tried, as the gateway estimates
)


class Outage:
    """Has a stand-in refuse, for want of room, what is asked in some turns; in the first of them not the first time."""

    def __init__(self, served: Served, turns: Sequence[int]) -> None:
        self._turns, self._turn, self._asked = turns, 0, 0
        vendor = served.vendor
        answer, hear = vendor.answer, vendor.hear
        refused = Refused(503, "No room left, try again later.", rule="outage", kind="server_error")

        def answered(method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
            is_asked = method == "POST" and "count" not in url
            return vendor.refusal(refused) if is_asked and self._fails(body) else answer(method, url, headers, body)

        def heard(message: Any, connection: dict[str, Any]) -> tuple[list[Json], Breaks]:
            if not self._fails(msgspec.json.encode(message)):
                return hear(message, connection)
            return [{"type": "error", "status": 503, **vendor.refusal(refused).body}], False

        vendor.answer = answered  # type: ignore[method-assign]  # it is told apart by nothing else
        vendor.hear = heard  # type: ignore[method-assign]  # as above

    def _fails(self, body: bytes) -> bool:
        found = _TURN.findall(body)
        turn = int(found[-1]) if found else self._turn  # what goes on with a stored answer names none
        self._asked = self._asked + 1 if turn == self._turn else 1
        self._turn = turn
        return turn in self._turns and (turn != self._turns[0] or self._asked > 1)


# How vendors refuse a prompt for its content: the words of ``FILTERED`` in ``providers/dialects/meanings.py``.
_FLAGGED = {
    "openai": Refused(
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy. Please try again with a"
        " different prompt.",
        rule="content",
        code="invalid_prompt",
    ),
    "anthropic": Refused(400, "Output blocked by content filtering policy", rule="content"),
}
_BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 9}}


class Filter:
    """Has a stand-in refuse for its content what is asked in one turn; Google tells it by an answer."""

    def __init__(self, served: Served) -> None:
        vendor = served.vendor
        answer, hear = vendor.answer, vendor.hear

        def answered(method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Reply:
            if not self._is_flagged(body):
                return answer(method, url, headers, body)
            if (refused := _FLAGGED.get(vendor.name)) is not None:
                return vendor.refusal(refused)
            if "alt=sse" not in url:
                return Reply(_BLOCKED)
            return Reply(blocks=[b"data: " + msgspec.json.encode(_BLOCKED) + b"\n\n"])

        def heard(message: Any, connection: dict[str, Any]) -> tuple[list[Json], Breaks]:
            if not self._is_flagged(msgspec.json.encode(message)):
                return hear(message, connection)
            refused = _FLAGGED[vendor.name]
            return [{"type": "error", "status": refused.status, **vendor.refusal(refused).body}], False

        vendor.answer = answered  # type: ignore[method-assign]  # it is told apart by nothing else
        vendor.hear = heard  # type: ignore[method-assign]  # as above

    @staticmethod
    def _is_flagged(body: bytes) -> bool:
        turns = _TURN.findall(body)
        return bool(turns) and int(turns[-1]) == WRONG


def fail(mix: Mix, served: Sequence[Served]) -> None:
    """Have both of two fail in their turns, or one filter a turn."""
    if mix.goes == FILTERED:
        Filter(served[0])
    if mix.vendor == CHANGE:
        for one, turns in zip(served, _FAILS.values(), strict=True):
            Outage(one, turns)


def configuration(mix: Mix, served: Sequence[Served], home: Path) -> Json:
    """Return the configuration of the gateway before them: the same deployments under each name."""
    parts = mix.parts
    deployments = [f"{part.vendor}/{part.model}" for part in parts]
    race = {"mode": "race", "width": len(parts), "max_prompt_tokens": 1_000_000}  # an agent's are long
    asked: Json = {"deployments": deployments, "race": race}
    others: Json = {}
    if mix.vendor == STATED:
        asked["deployments"] = [
            {"deployment": name, "capabilities": {"context_tokens": mix.context}} for name in deployments
        ]
    if mix.vendor == CHANGE:
        asked, others = {"deployments": deployments[:1], "fallbacks": ["other"]}, {"deployments": deployments[1:]}
    return {
        "port": 0,
        "database_url": f"sqlite:///{home}/holeshot.db",
        "spool_dir": f"{home}/spool",
        "lame_duck_s": 0,
        "log_format": "json",
        "providers": {
            part.vendor: {**part.provider, "base_url": one.base_url, "api_key": one.key}
            for part, one in zip(parts, served, strict=True)
        },
        "models": dict.fromkeys((*NAMES.values(), *BESIDE), asked) | ({"other": others} if others else {}),
        "clients": {"suite": {"key_sha256": sha256(GATEWAY_KEY), **({"usd_total": 0} if mix.vendor == SPENT else {})}},
    }
