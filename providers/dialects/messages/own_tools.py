"""Tools of Anthropic's whose parameters its models know, and that the client runs: elsewhere each is a function.

Their calls and results are those of any tool. The parameters of each version are from anthropic 2.14 (``types/beta``),
the pages of platform.claude.com/docs/en/agents-and-tools/tool-use, and, for ``insert_text``,
github.com/anthropics/anthropic-sdk-python/issues/1155, read on 2026-11-29.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

Json = dict[str, Any]

_DATED = re.compile(r"(bash|computer|memory|text_editor)_(\d{8})")
_TEXT, _NUMBER = {"type": "string"}, {"type": "integer"}
_POINT = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}
# The first days of versions that have more parameters, or name a parameter in another way.
_MORE_ACTIONS, _ZOOMS = "20250124", "20251124"
_NO_UNDO, _INSERTS_TEXT = "20250429", "20250728"


class OwnTool(NamedTuple):
    """The description and parameters of a function for such a tool, and the tool's fields that they were made of."""

    about: str
    parameters: Json
    settings: tuple[str, ...] = ()


def own_tool(kind: str, tool: Mapping[str, Any]) -> OwnTool | None:
    """Return the function for a decoded ``tool`` of this type; None: the type is another one."""
    found = _DATED.fullmatch(kind)
    if found is None:
        return None
    match found[1]:
        case "bash":
            return _BASH
        case "memory":
            return _MEMORY
        case "computer":
            return _computer(found[2], tool)
    return _text_editor(found[2], tool)


_BASH = OwnTool(
    "Runs a command in a bash session that goes on from call to call, and returns what it writes.",
    {
        "type": "object",
        "properties": {
            "command": {**_TEXT, "description": "The command. Needed, unless the session begins again."},
            "restart": {"type": "boolean", "description": "Whether the session begins again."},
        },
    },
)
_RANGE = {**_POINT, "description": "Of view: the first and the last line, from 1 on; -1 is the file's last."}
_OF_FILES: Json = {
    "path": {**_TEXT, "description": "The file or directory."},
    "view_range": _RANGE,
    "file_text": {**_TEXT, "description": "Of create: the file's text."},
    "old_str": {**_TEXT, "description": "Of str_replace: the text to replace, exactly as it is, which is there once."},
    "new_str": {**_TEXT, "description": "Of str_replace: the text in its place."},
    "insert_line": {**_NUMBER, "description": "Of insert: the line behind which the text is put; 0: at the beginning."},
    "insert_text": {**_TEXT, "description": "Of insert: the text."},
}


def _files(*commands: str, needed: tuple[str, ...], **more: Json) -> Json:
    command = {"type": "string", "enum": [*commands]}
    return {"type": "object", "properties": {"command": command, **_OF_FILES, **more}, "required": [*needed]}


_MEMORY = OwnTool(
    "Keeps notes in files under /memories for later conversations. View that directory before you begin a task, and "
    "note what you learn and how far you have got: the conversation may end at any time.",
    _files(
        *("view", "create", "str_replace", "insert", "delete", "rename"),
        needed=("command",),
        old_path={**_TEXT, "description": "Of rename."},
        new_path={**_TEXT, "description": "Of rename."},
    ),
)


def _text_editor(version: str, tool: Mapping[str, Any]) -> OwnTool:
    undoes = ("undo_edit",) if version < _NO_UNDO else ()
    parameters = _files("view", "create", "str_replace", "insert", *undoes, needed=("command", "path"))
    if version < _INSERTS_TEXT:
        inner = parameters["properties"]
        del inner["insert_text"]
        inner["new_str"] = {**_TEXT, "description": "Of str_replace: the text in its place. Of insert: the text."}
    most = tool.get("max_characters")
    told = f" A view has {most} characters at most." if most is not None else ""
    return OwnTool(f"Views files and directories, and creates and edits files.{told}", parameters, ("max_characters",))


def _computer(version: str, tool: Mapping[str, Any]) -> OwnTool:
    actions = ["key", "type", "mouse_move", "left_click", "left_click_drag", "right_click", "middle_click"]
    actions += ["double_click", "screenshot", "cursor_position"]
    properties: Json = {
        "action": {"type": "string", "enum": actions},
        "coordinate": {**_POINT, "description": "Of actions of the mouse: x and y, in pixels of the screenshot."},
        "text": {
            **_TEXT,
            "description": "Of type: the text. Of key: a key, or several, as in ctrl+s. Of clicks: held.",
        },
    }
    if version >= _MORE_ACTIONS:
        actions += ["left_mouse_down", "left_mouse_up", "triple_click", "scroll", "hold_key", "wait"]
        directions = ["up", "down", "left", "right"]
        properties |= {
            "start_coordinate": {**_POINT, "description": "Of left_click_drag: where it begins."},
            "scroll_direction": {"type": "string", "enum": directions, "description": "Of scroll."},
            "scroll_amount": {**_NUMBER, "description": "Of scroll: how many clicks of the wheel."},
            "duration": {"type": "number", "description": "Of hold_key and wait: seconds."},
        }
    if version >= _ZOOMS and tool.get("enable_zoom"):
        actions.append("zoom")
        region = {**_POINT, "minItems": 4, "maxItems": 4}
        properties["region"] = {**region, "description": "Of zoom: x and y of two corners."}
    wide, high, number = (tool.get(name) for name in ("display_width_px", "display_height_px", "display_number"))
    about = (
        "Uses a computer by its screen, mouse and keyboard. Take a screenshot to see what came of an action. "
        f"The screen has {wide} x {high} pixels."
    )
    if number is not None:
        about += f" It is display {number}."
    settings = ("display_width_px", "display_height_px", "display_number", "enable_zoom")
    return OwnTool(about, {"type": "object", "properties": properties, "required": ["action"]}, settings)
