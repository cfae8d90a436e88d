"""The functions of Google's ``computerUse``, whose parameters its models know, and that the client runs.

Elsewhere each of these functions is declared in the request; calls and results are those of any function. The functions
are from ai.google.dev/gemini-api/docs/computer-use and ``agent.py`` of github.com/google-gemini/computer-use-preview,
read on 2026-11-29.
"""

from collections.abc import Container, Mapping
from typing import Any, Final

Json = dict[str, Any]

COMPUTER: Final = "computerUse"
_SIDE: Final = {"type": "integer", "minimum": 0, "maximum": 999}
_POINT: Final = {"x": _SIDE, "y": _SIDE}
_TEXT: Final = {"type": "string"}
_DIRECTION: Final = {"type": "string", "enum": ["up", "down", "left", "right"]}
_SCALE = "x and y are thousandths of the screen's width and height, from its upper left corner."
# By name: what the function does, its parameters, and the parameters that may be left out.
_FUNCTIONS: Final[Mapping[str, tuple[str, Json, tuple[str, ...]]]] = {
    "open_web_browser": ("Opens the web browser.", {}, ()),
    "wait_5_seconds": ("Waits five seconds, so that the page can finish what it does.", {}, ()),
    "go_back": ("Goes back to the page before this one.", {}, ()),
    "go_forward": ("Goes forward to the page behind this one.", {}, ()),
    "search": ("Goes to the home page of a search engine.", {}, ()),
    "navigate": ("Goes to an address.", {"url": _TEXT}, ()),
    "click_at": (f"Clicks. {_SCALE}", _POINT, ()),
    "hover_at": (f"Moves the mouse there, which may open a menu. {_SCALE}", _POINT, ()),
    "type_text_at": (
        f"Types a text there; else it presses Enter behind it, and clears the field before. {_SCALE}",
        {**_POINT, "text": _TEXT, "press_enter": {"type": "boolean"}, "clear_before_typing": {"type": "boolean"}},
        ("press_enter", "clear_before_typing"),
    ),
    "key_combination": ("Presses a key, or several, as in control+c.", {"keys": _TEXT}, ()),
    "scroll_document": ("Scrolls the whole page.", {"direction": _DIRECTION}, ()),
    "scroll_at": (
        f"Scrolls what is there, by so many thousandths of the screen. {_SCALE}",
        {**_POINT, "direction": _DIRECTION, "magnitude": _SIDE},
        ("magnitude",),
    ),
    "drag_and_drop": (
        f"Drags what is there to a destination. {_SCALE}",
        {**_POINT, "destination_x": _SIDE, "destination_y": _SIDE},
        (),
    ),
}
COMPUTERS_FUNCTIONS: Final = tuple(_FUNCTIONS)
_BROWSER: Final = "ENVIRONMENT_BROWSER"
_ABOUT = "Each call returns a screenshot of the browser. "


def functions_of(environment: str, excluded: Container[str]) -> list[Json]:
    """Return the functions of a computer in chat's form; none for another environment than a browser."""
    if environment not in {"", _BROWSER, "ENVIRONMENT_UNSPECIFIED"}:
        return []
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": _ABOUT + about,
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": [each for each in properties if each not in optional],
                },
            },
        }
        for name, (about, properties, optional) in _FUNCTIONS.items()
        if name not in excluded
    ]
