"""Resolves references, which keep secrets out of the configuration's file, and caches the output of commands.

``${NAME}``, ``${NAME:-default}`` and ``${exec:command}`` may be anywhere in a string, ``os.environ/NAME`` and
``file:/path`` are whole strings; ``$${`` is a literal ``${``. A bare ``$NAME`` is refused, as it would be used
literally. An empty variable counts as not set, as in the shell's ``:-``. Resolved values are not resolved again. A
value that stands in a URL before the host, as a password does, is percent-encoded: the value may have any characters.
"""

import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.core.terminal_text import is_text
from gateway.settings.document import Complaint, Place
from gateway.settings.near_variables import like
from gateway.settings.sections import SecretSettings

_EXPRESSION = re.compile(r"\$\$(?=\{)|\$\{([^{}]*)\}|\$\{")
_NAMED = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)
_BARE = re.compile(
    r"(?:.*\s)?\$(?P<name>[A-Z_][A-Z0-9_]*)", re.DOTALL
)  # the whole value, or the value's last word: "Bearer $KEY"
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<user>[^/?#]*)@")
_URL = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<rest>(?P<authority>[^/?#]*).*)", re.DOTALL)
_OF_FILES = ("sqlite", "unix", "file")
_HOST_AND_PORT = re.compile(r"(?:\[[^\[\]]*\]|[^:]*)(?::\d*)?")
_SAFE_IN_LOGIN = ":%!$&'()*+,;=~"
_FREE = frozenset({"defaults", "extra_body", "system_prefix"})  # text of requests, which may have a dollar sign
_ENVIRON = "os.environ/"
_FILE = ("file:/", "file:./", "file:../")
_COMMAND = "exec:"
_MOST_BYTES = 64 * 1024  # of a command's output
_AGAIN_S = 30.0  # the wait after a command has failed, or the file that names it could not be read
_NO_COMMANDS = SecretSettings()


class References:
    """The files to which a configuration refers, and the output of its commands.

    A process that reloads its configuration keeps one such object. A command runs again when its interval is over. If
    the command then fails, its former output stays in use.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: monotonic, in seconds."""
        self.files: tuple[Path, ...] = ()  # files of the last reading
        self.failures: list[str] = []  # of commands in the last reading; former output stays in use
        self._clock = clock
        self._settings = _NO_COMMANDS
        self._reading: dict[Path, None] = {}
        self._printed: dict[str, _Printed] = {}
        self._used: set[str] = set()

    def is_due(self) -> bool:
        """Whether a command's interval is over."""
        now_s = self._clock()
        return any(now_s >= each.again_s for each in self._printed.values())

    def begin(self, settings: SecretSettings) -> None:
        """Begin to read a configuration with these settings."""
        self._settings = settings
        self._reading, self._used, self.failures = {}, set(), []

    def end(self) -> None:
        """End the reading, and drop the output of commands that this reading did not use."""
        self.files = tuple(self._reading)
        self._printed = {command: each for command, each in self._printed.items() if command in self._used}

    def expire(self) -> None:
        """Let every command run again in the next reading: its output was refused."""
        now_s = self._clock()
        self._printed = {command: _Printed(each.text, now_s) for command, each in self._printed.items()}

    def postpone(self) -> None:
        """Let due commands wait: the file that names them cannot be read, and would be tried again and again."""
        again_s = self._clock() + _AGAIN_S
        for command, each in self._printed.items():
            if each.again_s < again_s:
                self._printed[command] = _Printed(each.text, again_s)

    def content(self, path: Path) -> str:
        """Return a file's text, without surrounding white space.

        Raises:
            UnresolvedError: the file cannot be read, or has no text.

        """
        self._reading[path] = None
        try:
            value = path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UnresolvedError(f"{path} cannot be read ({error.strerror})", missing=False) from None
        except UnicodeDecodeError:
            raise UnresolvedError(f"{path} is not UTF-8 text", missing=False) from None
        if not value:
            raise UnresolvedError(f"{path} is empty", missing=False)
        return value

    def output(self, command: str, environ: Mapping[str, str], folder: Path) -> str:
        """Return the output of ``command``, from the cache within its interval, without surrounding white space.

        Raises:
            UnresolvedError: commands are not allowed; or the command fails, and never printed anything.

        """
        if not self._settings.exec:
            words = "${exec:…} runs a program, which is off: set `secrets: { exec: true }` if that is meant"
            raise UnresolvedError(words, missing=False)
        self._used.add(command)
        known, now_s = self._printed.get(command), self._clock()
        if known is not None and now_s < known.again_s:
            return known.text
        try:
            text = _run(command, self._settings.exec_timeout_s, environ, folder)
        except UnresolvedError as error:
            if known is None:
                raise
            self.failures.append(str(error))
            self._printed[command] = _Printed(known.text, now_s + min(_AGAIN_S, self._settings.exec_every_s))
            return known.text
        self._printed[command] = _Printed(text, now_s + self._settings.exec_every_s)
        return text


class _Printed(msgspec.Struct, frozen=True):
    """The output of a command, and when the command runs again, in seconds of the clock."""

    text: str
    again_s: float

    def __repr__(self) -> str:
        return "_Printed(***)"


def resolve(
    data: Any, environ: Mapping[str, str], folder: Path, references: References | None = None
) -> tuple[Any, list[Complaint]]:
    """Return ``data`` with its references replaced, and a complaint for each that cannot be resolved.

    In URLs, user and password are percent-encoded where a literal value would be wrong. Relative ``file:`` references
    start at ``folder``, and commands run there; without ``references`` no command runs. An unresolved reference becomes
    an empty string.
    """
    complaints: list[Complaint] = []
    read = references or References()

    def walk(value: Any, place: Place) -> Any:
        if isinstance(value, dict):
            return {key: walk(entry, (*place, key)) for key, entry in value.items()}
        if isinstance(value, list):
            return [walk(entry, (*place, index)) for index, entry in enumerate(value)]
        if not isinstance(value, str):
            return value
        try:
            is_free = not _FREE.isdisjoint(place)
            text = _resolve_text(value, environ, folder, read, may_be_bare=is_free)
            return text if is_free else with_login_encoded(text)
        except UnresolvedError as error:
            complaints.append(Complaint(place, f"{error}; {_way_out(place)}" if error.missing else str(error)))
            return ""

    return walk(data, ()), complaints


def is_literal(text: str) -> bool:
    """Whether ``text`` has no reference."""
    return not text.startswith((_ENVIRON, *_FILE)) and not _EXPRESSION.search(text)


def referred(text: str) -> str:
    """Return the name in a reference: ``GROQ_API_KEY``, ``file:/run/secrets/groq``; empty if there is no reference."""
    if text.startswith(_FILE):
        return text
    if text.startswith(_ENVIRON):
        return text.removeprefix(_ENVIRON)
    inner = [match[1] or "" for match in _EXPRESSION.finditer(text)]
    named = (_NAMED.fullmatch(each) for each in inner if not each.startswith(_COMMAND))
    names = [each["name"] for each in named if each is not None]  # without the default, which may be a key
    return " and ".join([*names, *["a command's output" for each in inner if each.startswith(_COMMAND)]])


class UnresolvedError(Exception):
    """A reference has no value. ``missing``: a variable is not set, so the message can propose to set the variable."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


def _resolve_text(text: str, environ: Mapping[str, str], folder: Path, read: References, *, may_be_bare: bool) -> str:
    if not may_be_bare and (bare := _BARE.fullmatch(text)):
        raise UnresolvedError(f"${bare['name']} is not a reference: write ${{{bare['name']}}}", missing=False)
    if text.startswith(_ENVIRON):
        return _variable(text.removeprefix(_ENVIRON), environ)
    if text.startswith(_FILE):
        return read.content(folder / text.removeprefix("file:"))

    user = _user_info(text)

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        value = valued(match)
        return quote(value, safe="") if match.start() in user else value

    def valued(match: re.Match[str]) -> str:
        inner = match[1] or ""
        if inner.startswith(_COMMAND):
            return read.output(inner.removeprefix(_COMMAND), environ, folder)
        named = _NAMED.fullmatch(inner)
        if named is None:
            raise UnresolvedError(
                "write a reference as ${NAME} or ${NAME:-default}, and a literal ${ as $${", missing=False
            )
        if named["default"] is not None:
            return _variable(named["name"], environ) if environ.get(named["name"]) else named["default"]
        return _variable(named["name"], environ)

    return _EXPRESSION.sub(replace, text)


def _user_info(text: str) -> range:
    """Return the places of user and password, if ``text`` is a URL with both: a value there is percent-encoded."""
    found = _USER_INFO.match(_EXPRESSION.sub(lambda match: "$" * len(match[0]), text))
    return range(0) if found is None else range(*found.span("user"))


def with_login_encoded(text: str) -> str:
    """Return ``text``; if it is a URL, with user and password percent-encoded where necessary.

    In a database's address, user and password end at the last ``@``; in other addresses at the last ``@`` before the
    path. If there is none, and the text up to the path cannot be a host and a port, the password has a ``/``, ``?`` or
    ``#``, and ends at the next ``@``.
    """
    if (found := _URL.fullmatch(text)) is None or "@" not in text or found["scheme"].lower().startswith(_OF_FILES):
        return text
    scheme, rest, authority = found["scheme"], found["rest"], found["authority"]
    if not scheme.lower().startswith("http"):
        login = rest.rpartition("@")[0]
    elif "@" in authority:
        login = authority.rpartition("@")[0]
    elif _HOST_AND_PORT.fullmatch(authority) is None:
        login = rest.partition("@")[0]
    else:
        return text
    return f"{scheme}://{quote(login, safe=_SAFE_IN_LOGIN)}{rest[len(login) :]}"


def _variable(name: str, environ: Mapping[str, str]) -> str:
    value = environ.get(name)
    if value and not is_text(value):
        raise UnresolvedError(f"{name} is not UTF-8 text", missing=False)
    if value:
        return value
    words = f"{name} is {'not set' if value is None else 'empty'}"
    if (near := like(name, environ)) is not None:
        words += f", but {near} is: did you mean that one?"
    raise UnresolvedError(words, missing=True)


def _way_out(place: Place) -> str:
    match place:
        case ("providers", str(name), *_):
            return f"set it or remove provider '{name}'"
        case ("clients", str(name), *_):
            return f"set it or remove client '{name}'"
        case _:
            return "set it, or write a default: ${NAME:-default}"


# Runs a command for its output, without a shell and without input. Its standard error is discarded, as programs write
# secrets there, too. Messages name only the program: the program's arguments may be secrets.


def _run(command: str, timeout_s: float, environ: Mapping[str, str], folder: Path) -> str:
    try:
        arguments = shlex.split(command)
    except ValueError:
        raise UnresolvedError("${exec:…} has a quotation mark that does not end", missing=False) from None
    if not arguments:
        raise UnresolvedError("${exec:…} names no program", missing=False)
    printed, problem = _printed_by(arguments, timeout_s, environ, folder)
    program = Path(arguments[0]).name
    if problem is not None:
        raise UnresolvedError(
            f"the command {program!r} {problem}; what it says of that is not shown, as it may have secrets: run it by"
            " hand, as the gateway's user",
            missing=False,
        )
    try:
        value = printed.decode().strip()
    except UnicodeDecodeError:
        raise UnresolvedError(f"the command {program!r} printed something that is not UTF-8", missing=False) from None
    if not value:
        raise UnresolvedError(f"the command {program!r} printed nothing", missing=False)
    return value


def _printed_by(
    arguments: list[str], timeout_s: float, environ: Mapping[str, str], folder: Path
) -> tuple[bytes, str | None]:
    """Return a program's output, and its problem or None.

    A program that takes too long or prints too much is killed with its children. Otherwise children may run on, as
    ``gpg-agent`` does.
    """
    import selectors  # noqa: PLC0415 - only if commands are run
    import subprocess  # noqa: PLC0415 - likewise

    try:
        process = subprocess.Popen(  # noqa: S603 - the operator's own command, which a setting must allow
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            cwd=folder,
            start_new_session=True,
        )
    except OSError as error:
        return b"", f"cannot be run ({error.strerror})"
    printed, ends_s = bytearray(), time.monotonic() + timeout_s
    assert process.stdout is not None  # a pipe was asked for
    try:
        with process.stdout as output, selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while len(printed) <= _MOST_BYTES:
                if not selector.select(max(0.0, ends_s - time.monotonic())):
                    return b"", f"did not end within {timeout_s:g} s (secrets.exec_timeout_s)"
                block = os.read(output.fileno(), _MOST_BYTES)
                if not block:
                    break
                printed += block
            else:
                return b"", f"printed more than {_MOST_BYTES // 1024} KiB"
        try:
            code = process.wait(max(0.0, ends_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return b"", f"did not end within {timeout_s:g} s (secrets.exec_timeout_s)"
        return bytes(printed), f"failed (exit code {code})" if code else None
    finally:
        if process.returncode is None:
            with suppress(OSError):  # the process ended by itself just now
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
