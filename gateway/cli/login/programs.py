"""The files of coding agents: writes into each file the command that the agent asks for its token, and undoes it.

From their documents and sources, read on 2026-11-29: Claude Code's ``apiKeyHelper`` (code.claude.com/docs/en/settings),
Codex's ``[model_providers.X.auth]`` (openai/codex#16267), opencode's plugins (the hook ``chat.headers``).
"""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

from gateway.cli.login.flow import LoginError
from gateway.cli.login.kept import WrittenSetting

NAME: Final = "holeshot"  # the provider's name in Codex's and opencode's files
Settings = Mapping[tuple[str, ...], Any]
Models = Mapping[str, Mapping[str, Any]]  # by name, each model as ``GET /v1/models`` lists it


def write(program: str, url: str, command: Sequence[str], models: Models, *, fresh_s: int = 60) -> list[WrittenSetting]:
    """Write the settings of ``program`` for the gateway at ``url``; return the changed settings.

    ``fresh_s``: how long the program keeps a token before it asks ``command`` again.

    Raises:
        LoginError: a file of the program cannot be read or written; then no file is changed.

    """
    changes: list[WrittenSetting] = []
    for path, settings in _PROGRAMS[program](url, command, models, 1000 * fresh_s):
        try:
            changes += _set(path, settings)
        except LoginError:
            undo(changes)
            raise
    return changes


def undo(changes: Sequence[WrittenSetting]) -> list[WrittenSetting]:
    """Restore the values before, where the setting is still as it was written; return the restored settings.

    A new file is removed if nothing is left in it.

    Raises:
        LoginError: a file cannot be read or written.

    """
    undone: list[WrittenSetting] = []
    for path in dict.fromkeys(change.path for change in changes):
        mine = [change for change in changes if change.path == path]
        if not Path(path).exists():
            continue
        if not mine[0].place:  # a file of the program's own, whole
            if Path(path).read_text(encoding="utf-8") == mine[0].after:
                Path(path).unlink()
                undone += mine
            continue
        document = _load(Path(path))
        still = [change for change in mine if _get(document, change.place) == change.after]
        if still:
            _save(Path(path), document, {change.place: change.before for change in still})
            if _text(Path(path), document).strip() in {"", "{}"} and any(change.is_new_file for change in mine):
                Path(path).unlink()
        undone += still
    return undone


def _claude_code(url: str, command: Sequence[str], _: Models, fresh_ms: int) -> list[tuple[Path, Settings]]:
    folder = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    helper = {
        ("apiKeyHelper",): _line([*command, "token", url]),
        ("env", "ANTHROPIC_BASE_URL"): url,
        ("env", "CLAUDE_CODE_API_KEY_HELPER_TTL_MS"): str(fresh_ms),
    }
    return [(folder / "settings.json", helper)]


def _codex(url: str, command: Sequence[str], models: Models, fresh_ms: int) -> list[tuple[Path, Settings]]:
    path = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex") / "config.toml"
    place = ("model_providers", NAME)
    settings: dict[tuple[str, ...], Any] = {
        ("model_provider",): NAME,
        (*place, "name"): "Holeshot",
        (*place, "base_url"): f"{url}/v1",
        (*place, "wire_api"): "responses",
        (*place, "auth", "command"): command[0],
        (*place, "auth", "args"): [*command[1:], "token", url],
        (*place, "auth", "timeout_ms"): 15_000,
        (*place, "auth", "refresh_interval_ms"): fresh_ms,
    }
    # Codex sums up a conversation by its own count: at 272,000 tokens for a model that Codex does not know (0.171.0). A
    # model with a smaller window would refuse first. A window that the user has set stays.
    document = _load(path)
    context = models.get(str(_get(document, ("model",))), {}).get("context_length")
    if context is not None and _get(document, ("model_context_window",)) is None:
        settings["model_context_window",] = context
    return [(path, settings)]


def _opencode(url: str, command: Sequence[str], models: Models, fresh_ms: int) -> list[tuple[Path, Settings]]:
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "opencode"
    place = ("provider", NAME)
    settings: dict[tuple[str, ...], Any] = {
        (*place, "npm"): "@ai-sdk/openai-compatible",
        (*place, "name"): "Holeshot",
        (*place, "options"): {"baseURL": f"{url}/v1", "apiKey": "by-command"},
        (*place, "models"): {name: _known_to_opencode(model) for name, model in models.items()},
    }
    plugin = _PLUGIN % {
        "name": json.dumps(NAME),
        "command": json.dumps([*command, "token", url]),
        "fresh_ms": fresh_ms,
    }
    return [(config / "opencode.json", settings), (config / "plugins" / f"{NAME}.js", {(): plugin})]


def _known_to_opencode(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return what opencode needs to know of a model, to show it pictures and to sum up before its window is full."""
    told: dict[str, Any] = {}
    limits = model.get("top_provider", {})
    if limits.keys() >= {"context_length", "max_completion_tokens"}:
        told["limit"] = {"context": limits["context_length"], "output": limits["max_completion_tokens"]}
    if (architecture := model.get("architecture")) is not None:
        inputs = [{"file": "pdf"}.get(each, each) for each in architecture["input_modalities"]]
        told |= {"attachment": inputs != ["text"], "modalities": {"input": inputs, "output": ["text"]}}
    return told


_PLUGIN = """// Written by `holeshot login --write opencode`: each request to the gateway has a fresh token.
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const [program, ...args] = %(command)s;
let token = "", until = 0;

export const Holeshot = async () => ({
  "chat.headers": async (input, output) => {
    if ((input.model?.providerID ?? input.provider?.info?.id) !== %(name)s) return;
    if (Date.now() > until) {
      token = (await promisify(execFile)(program, args)).stdout.trim();
      until = Date.now() + %(fresh_ms)d;
    }
    output.headers.authorization = `Bearer ${token}`;
  },
});
"""

_PROGRAMS: Mapping[str, Callable[[str, Sequence[str], Models, int], list[tuple[Path, Settings]]]] = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
}
PROGRAMS: Final = tuple(_PROGRAMS)


def _line(command: Sequence[str]) -> str:
    """Return a command as a shell's line: programs run the line by the system's own shell."""
    return subprocess.list2cmdline(command) if sys.platform == "win32" else shlex.join(command)


def _set(path: Path, settings: Settings) -> list[WrittenSetting]:
    if list(settings) == [()]:
        text = settings[()]
        before = path.read_text(encoding="utf-8") if path.exists() else None
        _write(path, text)
        return [] if before == text else [WrittenSetting(str(path), (), before, text)]
    document, changes, is_new_file = _load(path), [], not path.exists()
    for place, value in settings.items():
        before = _get(document, place)
        if before != value:
            changes.append(WrittenSetting(str(path), place, before, value, is_new_file))
    if changes:
        _save(path, document, {change.place: change.after for change in changes})
    return changes


def _load(path: Path) -> Any:
    """Return the document in a file; an empty document if there is no file.

    Raises:
        LoginError: the file is not TOML or JSON.

    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if path.suffix == ".toml":
            import tomlkit  # noqa: PLC0415 - of the extra ``login``

            return tomlkit.parse(text)
        found = json.loads(text or "{}")
    except (OSError, ValueError) as error:
        raise LoginError(f"{path} cannot be read, so nothing was written there: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise LoginError(f"{path} is no object, so nothing was written there")
    return found


def _save(path: Path, document: Any, values: Settings) -> None:
    """Write a document with these values.

    Raises:
        LoginError: the file cannot be written, or would say something else: the editor does not master all of TOML.

    """
    wanted = _read(path, _text(path, document))
    for place, value in values.items():
        _put(document, place, value)
        _put(wanted, place, value)
    text = _text(path, document)
    try:
        is_right = _read(path, text) == wanted
    except ValueError:
        is_right = False
    if not is_right:
        raise LoginError(f"{path} has a form that cannot be changed, so nothing was written there: edit it by hand")
    _write(path, text)


def _text(path: Path, document: Any) -> str:
    if path.suffix == ".toml":
        import tomlkit  # noqa: PLC0415 - as above

        return tomlkit.dumps(document)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _read(path: Path, text: str) -> Any:
    return tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)


def _write(path: Path, text: str) -> None:
    try:
        path = path.resolve()  # a link to where the files of a home folder are kept stays a link
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        mode = path.stat().st_mode & 0o777 if path.exists() else None
        fresh.touch(mode=0o666 if mode is None else 0o600)  # such a file may have a key that others must not read
        fresh.write_text(text, encoding="utf-8")
        if mode is not None:
            fresh.chmod(mode)
        fresh.replace(path)
    except OSError as error:
        raise LoginError(f"{path} cannot be written: {error.strerror}") from None


def _get(document: Any, place: Sequence[str]) -> Any:
    for name in place:
        if not isinstance(document, Mapping) or name not in document:
            return None
        document = document[name]
    return document.unwrap() if hasattr(document, "unwrap") else document


def _put(document: Any, place: Sequence[str], value: Any) -> None:
    """Set a value; None removes the value, and tables that this leaves empty."""
    *outer, last = place
    tables = [document]
    for number, name in enumerate(outer):
        if not isinstance(tables[-1].get(name), Mapping):
            if value is not None:  # whole: values that are added to a new table of TOML may be lost
                tables[-1][name] = reduce(lambda inner, name: {name: inner}, reversed(place[number + 1 :]), value)
            return
        tables.append(tables[-1][name])
    if value is not None:
        tables[-1][last] = value
        return
    tables[-1].pop(last, None)
    for name, table, within in zip(reversed(outer), reversed(tables[1:]), reversed(tables[:-1]), strict=True):
        if not table:
            within.pop(name, None)
