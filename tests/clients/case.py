"""What a client's file is written in: its cases, each tried at every target, and their outcomes as lines of JSON.

Runs under the client's own interpreter, so it needs the standard library alone.
"""

import argparse
import asyncio
import importlib.metadata
import inspect
import itertools
import json
import signal
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TextIO

from tests.clients.conversation import Turns

CASE_LIMIT_S = 300  # it only ends what hangs: on a busy machine an agent needs a minute to start
CHARACTERS_OF_A_FAILURE = 800


class Feature(StrEnum):
    """What a case is about: a column of the table."""

    ANSWERS = "answers"
    STREAMING = "streaming"
    TOOLS = "tools"
    STRUCTURED = "structured output"
    MEDIA = "pictures and sound"
    REASONING = "reasoning"
    FIELDS = "parameters and unknown fields"
    BYTES = "bytes untouched"
    ERRORS = "errors"
    RETRIES = "retries and time-outs"
    OTHERS = "other endpoints"
    TASK = "does a task"
    SIGNED_IN = "signed in"  # at a gateway's identity provider, so never directly


class Failed(Exception):
    """A case saw something else than it should."""


@dataclass(frozen=True)
class Target:
    """Somewhere to send requests: the upstream itself, or a gateway before it."""

    name: str
    url: str  # without /v1
    key: str
    wrong_key: str
    forbidden_key: str
    translates: bool
    gateway: bool
    models: dict[str, str]  # per surface: chat, completions, responses, messages, embeddings, ...
    troubled: dict[str, list[str]]  # per surface: the providers for calls that are to fail
    upstreams: list[str]
    apis: list[str] = field(default_factory=list)  # of conversations: those it has
    base: str = ""  # what OpenAI's SDKs want after the URL, where it is not /v1
    sees: bool = True  # pictures
    parallel: bool = True  # it calls several tools at once
    long: bool = False  # sessions there outgrow the model's context
    goes: str = ""  # what goes wrong there in one turn

    @property
    def openai(self) -> str:
        """The base URL as OpenAI's SDKs want it."""
        return f"{self.url}{self.base or '/v1'}"

    @property
    def chat(self) -> str:
        """The model of chat completions."""
        return self.models["chat"]

    @property
    def responses(self) -> str:
        """The model of responses."""
        return self.models["responses"]

    @property
    def messages(self) -> str:
        """The model of Anthropic's messages."""
        return self.models["messages"]

    @property
    def gemini(self) -> str:
        """The model of Google's generateContent."""
        return self.models["gemini"]

    def troubled_model(self, surface: str) -> str:
        """Return a model nobody asked for yet: what fails there is held against nobody else."""
        name = unique("m")
        return ",".join(f"{provider}/{name}" for provider in self.troubled[surface]) or name


Run = Callable[[Target], Awaitable[None] | None]


@dataclass(frozen=True)
class Case:
    """One thing a client does. ``unsaid`` is what some translation cannot say: it may be refused, in these words."""

    feature: Feature
    run: Run
    unsaid: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name of the function, as a sentence."""
        return self.run.__name__.replace("_", " ")


Talk = Callable[[Target, Turns], Awaitable[None] | None]


@dataclass(frozen=True)
class Conversation:
    """Ten turns with a vendor, in one of the client's ways to have them."""

    api: str
    run: Talk
    version: Callable[[], str]

    @property
    def title(self) -> str:
        """The name of the function, as words."""
        return self.run.__name__.replace("_", " ")


class Suite:
    """The cases of one client, and its conversations."""

    def __init__(self, client: str, package: str | None = None, version: Callable[[], str] | None = None) -> None:
        self._client = client
        self._version = version or (lambda: importlib.metadata.version(package or client))
        self._cases: list[Case] = []
        self._conversations: list[Conversation] = []

    def conversation(self, api: str, package: str | None = None) -> Callable[[Talk], Talk]:
        """Make a conversation in one API of a function, which takes a target and the turns."""

        def add(run: Talk) -> Talk:
            version = self._version if package is None else lambda: importlib.metadata.version(package)
            self._conversations.append(Conversation(api, run, version))
            return run

        return add

    def case(self, feature: Feature, *, unsaid: str | tuple[str, ...] = ()) -> Callable[[Run], Run]:
        """Make a case of a function."""

        def add(run: Run) -> Run:
            self._cases.append(Case(feature, run, (unsaid,) if isinstance(unsaid, str) else unsaid))
            return run

        return add

    def main(self) -> None:
        """Run every case at every target of the plan; write what came of it."""
        parser = argparse.ArgumentParser(description=f"The cases of {self._client}.")
        parser.add_argument("plan", type=Path)
        parser.add_argument("results", type=Path)
        parser.add_argument("--case", default="", help="only those with this in their title")
        asked = parser.parse_args()
        plan = json.loads(asked.plan.read_text())
        targets = [Target(**item) for item in plan["targets"]]
        signal.signal(signal.SIGALRM, _too_long)
        with asked.results.open("a") as results, asyncio.Runner() as runner:  # one loop: some clients keep theirs
            if plan.get("turns"):
                self._talk(targets, asked.case, results, runner)
                return
            version = self._version()
            for case in self._cases:
                if asked.case not in case.title:
                    continue
                for target in targets:
                    if target.translates and case.feature is Feature.OTHERS:
                        continue
                    if not target.gateway and case.feature is Feature.SIGNED_IN:
                        continue
                    began = time.monotonic()
                    outcome, why = _outcome(case, target, runner)
                    entry = {
                        "client": self._client,
                        "version": version,
                        "feature": case.feature,
                        "case": case.title,
                        "target": target.name,
                        "outcome": outcome,
                        "why": why,
                        "seconds": round(time.monotonic() - began, 3),
                    }
                    results.write(json.dumps(entry) + "\n")
                    results.flush()

    def _talk(self, targets: list[Target], title: str, results: TextIO, runner: asyncio.Runner) -> None:
        for talk in self._conversations:
            if title not in talk.title:
                continue
            version = talk.version()
            for target in targets:
                if talk.api not in target.apis:
                    continue
                began, turns = time.time(), Turns(target.sees, target.parallel, target.long, target.goes)
                why = _failure(partial(talk.run, target, turns), runner)
                entry = {
                    "client": self._client,
                    "version": version,
                    "api": talk.api,
                    "case": talk.title,
                    "target": target.name,
                    "turn": turns.at,
                    "refused": why is not None and _is_refusal(why),
                    "why": "" if why is None else _words(why),
                    "began": began,
                    "ended": time.time(),
                }
                results.write(json.dumps(entry) + "\n")
                results.flush()


_NUMBERS = itertools.count(1)


def unique(word: str) -> str:
    """Return a name that nobody else uses in this run."""
    return f"{word}-{Path(sys.argv[0]).stem}-{next(_NUMBERS)}"


def expect(condition: object, seen: object = "") -> None:
    """Fail the case unless ``condition`` holds; ``seen`` says what was there instead.

    Raises:
        Failed: it does not.

    """
    if not condition:
        caller = inspect.stack()[1]
        line = (caller.code_context or [""])[0].strip()
        raise Failed(f"{line}: {_shortened(str(seen))}")


def equal(seen: object, expected: object) -> None:
    """Fail the case unless both are equal.

    Raises:
        Failed: they are not.

    """
    if seen != expected:
        raise Failed(f"{_shortened(repr(seen))} is not {_shortened(repr(expected))}")


def raised(kind: type[BaseException] | tuple[type[BaseException], ...], call: Callable[[], object]) -> Any:
    """Return the error of ``kind`` that ``call`` raises.

    Raises:
        Failed: it raises none.

    """
    try:
        seen = call()
    except kind as error:
        return error
    raise Failed(f"nothing was raised, but {_shortened(repr(seen))} returned")


async def raised_by(kind: type[BaseException] | tuple[type[BaseException], ...], call: Awaitable[object]) -> Any:
    """Return the error of ``kind`` that awaiting ``call`` raises.

    Raises:
        Failed: it raises none.

    """
    try:
        seen = await call
    except kind as error:
        return error
    raise Failed(f"nothing was raised, but {_shortened(repr(seen))} returned")


def _shortened(text: str) -> str:
    """Keep both ends of a long text: what a program says last tells most."""
    half = CHARACTERS_OF_A_FAILURE // 2
    return text if len(text) <= 2 * half else f"{text[:half]} ... {text[-half:]}"


def _outcome(case: Case, target: Target, runner: asyncio.Runner) -> tuple[str, str]:
    error = _failure(lambda: case.run(target), runner)
    if error is None:
        return "pass", ""
    if target.translates and _is_refusal(error, case.unsaid):
        return "refused", _words(error)
    return "fail", _words(error)


def _failure(run: Callable[[], Awaitable[None] | None], runner: asyncio.Runner) -> BaseException | None:
    """Run something to its end, or for so long; return what it raised, if it did."""
    signal.alarm(CASE_LIMIT_S)
    try:
        running = run()
        if inspect.iscoroutine(running):
            runner.run(running)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return error
    else:
        return None
    finally:
        signal.alarm(0)


def _is_refusal(error: BaseException, words: tuple[str, ...] = ("",)) -> bool:
    """Is this a 400 that says one of these words?"""
    chain = list(_chain(error))
    said = "\n".join(map(str, chain))
    statuses = {getattr(item, name, None) for item in chain for name in ("status_code", "code")}  # the second: Google's
    # The second is what Codex prints of one, without its status, the third what aider does.
    printed = any(
        word in said for word in ("Error code: 400", '\\"unsupported_by_deployments\\"', "litellm.BadRequest")
    )
    refused = printed or 400 in statuses
    return refused and any(word in said for word in words)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _words(error: BaseException) -> str:
    """Say what happened, and at which line of the case."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if "tests/clients/python" in frame.filename
    ]
    where = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {_shortened(str(error))}{where}"


def _too_long(*_: object) -> NoReturn:
    raise Failed(f"it took longer than {CASE_LIMIT_S} s")
