"""OpenAI's tools without a name that the client runs: in other APIs each is a function, and its calls are a function's.

The function's parameters are the fields of a call's item, so that a call of the function becomes such an item again.
The shapes are those of openai 3.57 (``types/responses``) and of codex-rs/protocol/src/models.rs, read on 2026-11-29.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from providers.bodies import encoded
from providers.dialects.wording import as_error, raw_json

Json = dict[str, Any]

_NUMBER, _TEXT = {"type": "integer"}, {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_POINT = {"type": "object", "properties": {"x": _NUMBER, "y": _NUMBER}, "required": ["x", "y"]}
_ACTION: Json = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": [
                *("click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"),
            ],
        },
        "x": {**_NUMBER, "description": "Of click, double_click, move and scroll, in pixels of the screenshot."},
        "y": _NUMBER,
        "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"], "description": "Of click."},
        "path": {"type": "array", "items": _POINT, "description": "Of drag."},
        "keys": {**_TEXTS, "description": "Of keypress; of others the keys that are held."},
        "scroll_x": {**_NUMBER, "description": "Of scroll, in pixels."},
        "scroll_y": _NUMBER,
        "text": {**_TEXT, "description": "Of type."},
    },
    "required": ["type"],
}
_SHELL: Json = {
    "type": "object",
    "properties": {
        "commands": {**_TEXTS, "description": "The commands, which a shell runs in this order."},
        "timeout_ms": {**_NUMBER, "description": "The longest time for them, in milliseconds."},
        "max_output_length": {**_NUMBER, "description": "The most characters that are told of each one's output."},
    },
    "required": ["commands"],
}
_LOCAL_SHELL: Json = {
    "type": "object",
    "properties": {
        "command": {**_TEXTS, "description": "The program and its arguments."},
        "env": {"type": "object", "additionalProperties": _TEXT, "description": "Variables of its environment."},
        "timeout_ms": {**_NUMBER, "description": "The longest time for it, in milliseconds."},
        "user": {**_TEXT, "description": "The user as whom it runs."},
        "working_directory": {**_TEXT, "description": "Where it runs."},
    },
    "required": ["command"],
}
_DIFF = (
    "Of create_file each line of the file behind a +. Of update_file hunks: each begins with a line of @@, alone or "
    "with the function or class that it is in; then lines behind a space as they are, behind a - those to take out, "
    "behind a + those to put in, with three lines as they are before and after."
)
_PATCH: Json = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
        "path": {**_TEXT, "description": "The file."},
        "diff": {**_TEXT, "description": _DIFF},
    },
    "required": ["type", "path"],
}


class BuiltIn(NamedTuple):
    """A tool of OpenAI's own that the client runs."""

    name: str  # of the function
    call: str  # the type of the item of a call
    prefix: str  # of the id of a call's item
    holds: str  # the item's field that has the arguments
    about: str = ""
    parameters: Json = {}  # noqa: RUF012 -- never written to
    usual: Json = {}  # noqa: RUF012 -- never written to: the arguments' values unless the model sets others
    beside: Json = {}  # noqa: RUF012 -- never written to: fields of the item beside the arguments
    settings: tuple[str, ...] = ()  # fields of the tool

    def told(self, tool: Json) -> Json:
        """Return the function for a ``tool`` of a request."""
        about = [self.about]
        if "display_width" in tool and "display_height" in tool:
            about.append(f"The screen has {tool['display_width']} x {tool['display_height']} pixels.")
        if isinstance(place := tool.get("environment"), str):
            about.append(f"Its environment: {place}.")
        about += [f"A skill, to be read in {each.get('path')}: {each.get('description')}" for each in _skills(tool)]
        return {"name": self.name, "description": "\n".join(about), "parameters": self.parameters}

    def item(self, arguments: Json) -> Json:
        """Return the fields of the item of a call with these ``arguments``."""
        return {self.holds: self._held(arguments), **self.beside}

    def _held(self, arguments: Json) -> Any:
        if self.holds == _LIST:
            return arguments.get(_LIST, [arguments] if arguments else [])
        for name in ("commands", "command"):
            if isinstance(line := arguments.get(name), str):  # some models write a line in place of a list
                arguments = {**arguments, name: [line] if name == "commands" else ["bash", "-lc", line]}
        return {**self.usual, **arguments}

    def arguments(self, item: Mapping[str, Any]) -> Json:
        """Return the arguments of a call from its decoded ``item``."""
        if self.call == _OF_COMPUTER and item.get(_LIST) is not None:
            return {_LIST: item[_LIST]}
        held = item.get("action" if self.holds == _LIST else self.holds)
        held = held if isinstance(held, dict) else {}
        return {name: value for name, value in held.items() if value is not None and not self._is_usual(name, value)}

    def _is_usual(self, name: str, value: Any) -> bool:
        return name in self.usual and name not in self.parameters["required"] and self.usual[name] == value


_LIST, _OF_COMPUTER = "actions", "computer_call"
_USE = "Uses a computer by its screen, mouse and keyboard. Each call is answered with a screenshot."
SEARCH = BuiltIn("tool_search", "tool_search_call", "tsc", "arguments", beside={"execution": "client"})
SHELL = BuiltIn(
    *("shell", "shell_call", "sh", "action", "Runs commands in a shell, and returns what they write."),
    *(
        _SHELL,
        {"commands": [], "timeout_ms": None, "max_output_length": None},
        {"environment": {"type": "local"}},
        ("environment",),
    ),
)
_COMPUTER = BuiltIn(
    *("computer", _OF_COMPUTER, "cu", _LIST, _USE),
    {
        "type": "object",
        "properties": {_LIST: {"type": "array", "items": _ACTION, "description": "What to do, one after the other."}},
        "required": [_LIST],
    },
    {},
    {"pending_safety_checks": []},
)
BUILT_IN: Mapping[str, BuiltIn] = {
    "tool_search": SEARCH,
    "shell": SHELL,
    "local_shell": BuiltIn(
        *("local_shell", "local_shell_call", "lsh", "action", "Runs a program, and returns what it writes."),
        *(_LOCAL_SHELL, {"type": "exec", "command": [], "env": {}}),
    ),
    "apply_patch": BuiltIn(
        *("apply_patch", "apply_patch_call", "apc", "operation", "Creates, changes or deletes a file."),
        _PATCH,
    ),
    "computer": _COMPUTER,
    "computer_use": _COMPUTER,
    "computer_use_preview": BuiltIn(
        *("computer", _OF_COMPUTER, "cu", "action", _USE),
        *(_ACTION, {}, {"pending_safety_checks": []}, ("display_width", "display_height", "environment")),
    ),
}
_BY_CALL: Mapping[str, BuiltIn] = {own.call: own for own in BUILT_IN.values() if own is not SEARCH} | {
    _OF_COMPUTER: _COMPUTER
}
CALLS, RESULTS = frozenset(_BY_CALL), frozenset(f"{kind}_output" for kind in _BY_CALL)
OF_CALLS = (
    "call_id",
    "action",
    "actions",
    "operation",
    "environment",
    "pending_safety_checks",
    "created_by",
)  # fields of the items of these tools
OF_RESULTS = ("call_id", "output", "max_output_length", "acknowledged_safety_checks", "created_by")


def built_in(tool: Mapping[str, Any]) -> BuiltIn | None:
    """Return the built-in tool that a decoded ``tool`` is; None: another tool, or one that the vendor runs."""
    own = BUILT_IN.get(str(tool.get("type")))
    if own is SEARCH:
        return own if tool.get("execution") == "client" else None
    if own is SHELL and isinstance(place := tool.get("environment"), dict):
        return own if place.get("type", "local") == "local" else None
    return own


def chosen(kind: str | None) -> str | None:
    """Return the name of the function that a choice of this type means; None: no built-in tool has the type."""
    own = BUILT_IN.get(kind or "")
    return None if own is None else own.name


def called(item: Mapping[str, msgspec.Raw]) -> tuple[str, str]:
    """Return the function that the item of an earlier call means, and the arguments.

    Raises:
        msgspec.DecodeError, KeyError: the item is no such call.

    """
    said = {name: msgspec.json.decode(item[name]) for name in ("type", *OF_CALLS) if name in item}
    own = _BY_CALL[said["type"]]
    return own.name, encoded(own.arguments(said)).decode()


def call_id_of(item: Mapping[str, msgspec.Raw]) -> msgspec.Raw | None:
    """Return the id of a call, or of the call that a result answers; a local shell's id may stand in ``id`` alone."""
    return item.get("call_id") or item.get("id")


def result_of(item: Mapping[str, msgspec.Raw], *, flags: bool) -> tuple[msgspec.Raw, bool]:
    """Return the output of a result as a function's output, and whether the tool has failed.

    ``flags``: the failure is a field beside the output, and no text in the output.

    Raises:
        msgspec.DecodeError: the item is no such result.

    """
    output = item.get("output", _NOTHING)
    kind = msgspec.json.decode(item["type"])
    if kind == "computer_call_output":
        return msgspec.Raw(b"[%b]" % bytes(output)), False
    if kind == "shell_call_output":
        return raw_json(_written(msgspec.json.decode(output))), False
    if kind == "apply_patch_call_output":
        failed = bytes(item.get("status", b"")) == b'"failed"'
        text = msgspec.json.decode(output) or ("" if failed else "Done")
        return raw_json(text if flags or not failed else as_error(text)), failed
    return output, False


_NOTHING = msgspec.Raw(b'""')


def _written(output: Any) -> str:
    """Return what commands have written as a text, in the order of the commands."""
    if isinstance(output, str):
        return output
    return "\n".join(filter(None, map(_of_command, output if isinstance(output, list) else [])))


def _of_command(said: Any) -> str:
    if not isinstance(said, dict):
        return encoded(said).decode()
    ended = said.get("outcome")
    ended = ended if isinstance(ended, dict) else {}
    code = ended.get("exit_code")
    end = "[timed out]" if ended.get("type") == "timeout" else f"[exit code {code}]" if code else ""
    texts = [str(said.get(name) or "").rstrip("\n") for name in ("stdout", "stderr")]
    return "\n".join(filter(None, [*texts, end])) or "[no output]"


def _skills(tool: Json) -> Sequence[Json]:
    place = tool.get("environment")
    skills = place.get("skills") if isinstance(place, dict) else None
    return [each for each in skills if isinstance(each, dict)] if isinstance(skills, list) else []
