"""Text for terminals: escapes control characters and direction marks, formats counts, spells commands."""

import os
import shutil
import sys
from pathlib import Path

_TAB, _LINE_FEED, _ONE_BYTE = 0x09, 0x0A, 0xFF
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINE_ENDS = (0x2028, 0x2029)
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *_LINE_ENDS, *_BIDI)
_AS_PYTHON = {code: f"\\x{code:02x}" if code <= _ONE_BYTE else f"\\u{code:04x}" for code in _CONTROLS}
_AS_PYTHON |= {_TAB: r"\t", _LINE_FEED: r"\n", 0x0D: r"\r"}
_BUT_LAYOUT = {code: shown for code, shown in _AS_PYTHON.items() if code not in {_TAB, _LINE_FEED}}
_AS_JSON = {code: f"\\u{code:04x}" for code in _CONTROLS if code not in {_TAB, _LINE_FEED}}


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return ``text`` with control characters as Python writes them: ``\x1b``.

    ``lines`` leaves line feeds and tabs unchanged, for text that is laid out on purpose.
    """
    if text.isprintable():
        return text
    return text.translate(_BUT_LAYOUT if lines else _AS_PYTHON)


def is_text(value: str) -> bool:
    """Return whether ``value``, an argument or a variable, was UTF-8; other bytes are lone surrogates in Python."""
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 model`` or ``3 models``; ``plural`` is for nouns without a plural in s."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def visible_json(text: str) -> str:
    """Return the same JSON, with those control characters escaped that JSON itself allows."""
    return text if text.isprintable() else text.translate(_AS_JSON)


def program(name: str) -> str:
    """Return the command of a program of this environment: only its name if it is on the PATH."""
    path = Path(sys.executable).parent / name
    first_on_path = shutil.which(name)
    if first_on_path is not None and Path(first_on_path).absolute() == path.absolute():
        return name
    return os.path.relpath(path) if path.exists() else name
