"""What a laptop keeps of a sign-in: the current token in a file, the refresh token in the system's keyring.

Where there is no keyring, or the keyring does not answer, the refresh token is in that file too. Only its owner can
read the file.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import typer

from gateway.cli.login.flow import LoginError, LoginProvider, LoginTokens, renew

T = TypeVar("T")
SERVICE: Final = "holeshot"  # the service's name in the keyring
_PATIENCE_S = 3.0  # how long to wait for the keyring: without a session to ask in, a keyring may wait for ever
_HANGS_S = 60.0  # how long a keyring that hangs is not asked again: each of several programs would wait
_LOCK_S = 60.0  # how long to wait for another process that renews
_PAUSES_S = (0.01, 0.03, 0.1, 0.3, 1.0)  # pauses before the next try: on Windows another process may have the file open
_EARLY_S = 60.0  # a token is renewed so long before its end, or in its last tenth


class WrittenSetting(msgspec.Struct, frozen=True):
    """One setting that was written into a program's file: its place, and the value before; None: there was none."""

    path: str
    place: tuple[str, ...]
    before: Any
    after: Any
    is_new_file: bool = False  # there was no file before


class Login(msgspec.Struct, frozen=True):
    """One sign-in, by the address of its gateway."""

    provider: LoginProvider
    token: str
    began_at: float  # Unix seconds
    ends_at: float
    refresh_token: str | None = None  # None: the keyring has it, or there is none

    @property
    def early_s(self) -> float:
        """How long before its end the token is renewed. A printed token is good for at least as long."""
        return min(_EARLY_S, 0.1 * (self.ends_at - self.began_at))

    def is_fresh(self, now_s: float) -> bool:
        """Whether the token is good for a while."""
        return now_s < self.ends_at - self.early_s


class LoginFile(msgspec.Struct):
    """The whole file. ``keyring_hung_at``: Unix seconds; 0: the keyring answered the last time."""

    logins: dict[str, Login] = {}
    keyring_hung_at: float = 0.0
    changes: dict[str, list[WrittenSetting]] = {}  # by the program


def folder() -> Path:
    """Return the folder of this user's sign-ins."""
    return Path(typer.get_app_dir("holeshot"))


def read() -> LoginFile:
    """Return the file's content.

    Raises:
        LoginError: the file cannot be read.

    """
    path = folder() / "logins.json"
    try:
        return msgspec.json.decode(_undisturbed(path.read_bytes), type=LoginFile)
    except FileNotFoundError:
        return LoginFile()
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LoginError(f"{path} cannot be read ({type(error).__name__}): delete it, and sign in again") from None


def write(kept: LoginFile) -> None:
    """Write the whole file; at each instant the file is the former or the new one, and only its owner may read it.

    Raises:
        LoginError: the file cannot be written.

    """
    path = folder() / "logins.json"
    fresh = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fresh.touch(mode=0o600)
        fresh.write_text(json.dumps(msgspec.to_builtins(kept)), encoding="utf-8")
        _undisturbed(lambda: fresh.replace(path))
    except OSError as error:
        raise LoginError(f"{path} cannot be written: {error.strerror}") from None


def _undisturbed(act: Callable[[], T]) -> T:
    """Return what ``act`` does with the file, and wait for it: Windows replaces no file that a process reads just now.

    Raises:
        OSError: ``act`` fails; on Windows after one and a half seconds.

    """
    for pause_s in _PAUSES_S:
        try:
            return act()
        except PermissionError as error:
            if getattr(error, "winerror", None) is None:
                raise
        time.sleep(pause_s)
    return act()


@contextmanager
def locked() -> Iterator[None]:
    """Hold a lock that one process of this user holds at a time.

    Raises:
        LoginError: another process holds the lock for too long, or the folder cannot be written.

    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - of the extra ``login``; a token from the cache needs none

    lock = FileLock(folder() / "logins.lock", timeout=_LOCK_S)
    try:
        folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        lock.acquire()
    except Timeout:
        raise LoginError(f"another process holds {lock.lock_file}: try again") from None
    except OSError as error:
        raise LoginError(f"{folder()} cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        lock.release()


def keep(url: str, provider: LoginProvider, tokens: LoginTokens, now_s: float, *, in_file: bool = False) -> bool:
    """Keep a sign-in; return whether its refresh token is in the keyring. Under ``locked``.

    ``in_file``: the keyring is not asked, as the keyring did not take the token before.
    """
    in_keyring = not in_file and tokens.refresh_token is not None and _in_keyring(url, tokens.refresh_token)
    if tokens.refresh_token is None:  # else a former one, perhaps another person's, stays there
        _asked(lambda keyring: keyring.delete_password(SERVICE, url))
    kept = read()
    kept.keyring_hung_at = 0.0
    kept.logins[url] = Login(
        provider, tokens.token, now_s, tokens.ends_at, None if in_keyring else tokens.refresh_token
    )
    write(kept)
    return in_keyring


def forget(url: str) -> bool:
    """Forget a sign-in; return whether there was one."""
    with locked():
        kept = read()
        login = kept.logins.pop(url, None)
        write(kept)
    if login is not None and login.refresh_token is None:
        _asked(lambda keyring: keyring.delete_password(SERVICE, url))
    return login is not None


def fresh_token(url: str | None, *, unix_clock: Callable[[], float] = time.time) -> str:
    """Return a token for the gateway at ``url`` that is good for a while; None: the only gateway there is.

    Of several processes one renews the token. The others take the renewed token from the file.

    Raises:
        LoginError: there is no sign-in, or it has ended.

    """
    url, login = _login(read().logins, url)
    if login.is_fresh(unix_clock()):
        return login.token
    with locked():
        kept = read()
        url, login = _login(kept.logins, url)
        if login.is_fresh(unix_clock()):
            return login.token
        refresh_token = login.refresh_token or _from_keyring(url, kept, unix_clock())
        if not refresh_token:
            raise LoginError(f"the token for {url} has ended, and nothing renews it: run `holeshot login {url}`")
        try:
            tokens = renew(login.provider, refresh_token, unix_clock=unix_clock)
        except LoginError as error:
            raise LoginError(f"{error}: run `holeshot login {url}`") from None
        # Kept before its first use: the former refresh token may no longer be good.
        keep(url, login.provider, tokens, unix_clock(), in_file=login.refresh_token is not None)
    return tokens.token


def _login(logins: Mapping[str, Login], url: str | None) -> tuple[str, Login]:
    if url is None and len(logins) == 1:
        return next(iter(logins.items()))
    if url is not None and url in logins:
        return url, logins[url]
    known = ", ".join(logins) or "none"
    where = url or "URL"
    raise LoginError(f"nobody has signed in at {where} here (signed in at: {known}): run `holeshot login {where}`")


def _in_keyring(url: str, secret: str) -> bool:
    """Store a secret in the system's keyring; return whether it is stored."""
    if not _asked(lambda keyring: keyring.set_password(SERVICE, url, secret)):
        return False
    return _asked(lambda keyring: keyring.get_password(SERVICE, url)) == [secret]


def _from_keyring(url: str, kept: LoginFile, now_s: float) -> str | None:
    """Return the refresh token of a sign-in from the system's keyring; None: not there. Call this under ``locked``.

    Raises:
        LoginError: the keyring does not answer, or did not a moment ago.

    """
    hangs = 0.0 <= now_s - kept.keyring_hung_at < _HANGS_S
    found = None if hangs else _asked(lambda keyring: keyring.get_password(SERVICE, url))
    if found is None:
        if not hangs:
            kept.keyring_hung_at = now_s
            write(kept)
        raise LoginError(
            "the system's keyring, which has what renews the sign-in, does not answer: unlock it, or run"
            f" `holeshot login {url}`, which then keeps that in a file"
        )
    return found[0] if found else None


def _asked(ask: Callable[[Any], T]) -> list[T] | None:
    """Ask the keyring, for a few seconds; return its answer in a list, empty if it failed. None: it does not answer."""
    answers: list[list[T]] = []

    def run() -> None:
        try:
            import keyring  # noqa: PLC0415 - of the extra ``login``

            answers.append([ask(keyring)])
        except Exception:  # noqa: BLE001 - each backend raises its own; a file does as well
            answers.append([])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return answers[0] if answers else None


def program() -> list[str]:
    """Return the command by which other programs start this one, from any folder."""
    script = Path(sys.argv[0]).absolute()
    return (
        [str(script)] if script.name.startswith("holeshot") and script.is_file() else [sys.executable, "-m", "holeshot"]
    )
