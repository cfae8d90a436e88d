"""Every verb of the command line, with its arguments and options."""

from collections.abc import Iterator
from typing import Any

import typer.main

from documentation.tables import code, table
from gateway.cli.main import application

_HEAD = """# Command line

`holeshot VERB --help` says the same. This page is made from the code by `make docs`; a test holds it.

Exit codes: 0, it worked; 1, it did not, and one sentence on standard error says why; 2, the command was used
wrongly; 130, Ctrl-C. Figures go to standard output, all
else to standard error. `--json` is for scripts.
"""


def page() -> str:
    """Return the text of docs/reference/command-line.md."""
    lines = [_HEAD]
    for name, command in _commands("holeshot", typer.main.get_command(application())):
        lines += [f"## `{name}`", "", *_words(command.help or ""), ""]
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
        if arguments:
            lines += [
                *table(("argument", "what it is"), [(code(each.name or ""), _help(each)) for each in arguments]),
                "",
            ]
        rows = [
            (", ".join(code(one) for one in (*each.opts, *each.secondary_opts)), _help(each), _default(each))
            for each in options
            if each.name != "help"
        ]
        if rows:
            lines += [*table(("option", "what it does", "default"), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None or command.invoke_without_command:
        yield name, command
    if inner is None:
        return
    for each in sorted(inner):
        if not inner[each].hidden:
            yield from _commands(f"{name} {each}", inner[each])


def _words(text: str) -> list[str]:
    """Return a help text as Markdown: blocks that are drawn by hand stay as they are."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        if block.lstrip().startswith("\b"):
            lines += ["```", *block.replace("\b", "").strip("\n").splitlines(), "```", ""]
        else:
            lines += [" ".join(block.split()), ""]
    return lines[:-1]


def _help(one: Any) -> str:
    return str(getattr(one, "help", None) or "")


def _default(one: Any) -> str:
    value = one.default
    if value is None or value is False or callable(value) or value in ([], ()):
        return ""
    return code(str(getattr(value, "value", value)))
