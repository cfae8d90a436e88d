"""Every verb of the command line, with its arguments and options."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer.main

from gateway.cli.main import application
from tools.documentation.tables import code, marked

_HEAD = """# Command line

Every verb of `holeshot`, with its arguments and options. `holeshot VERB --help` says the same, with all examples.

- **For scripts**: figures go to standard output, all else to standard error.
- **Exit codes**: 0, it worked; 1, it did not, and one sentence on standard error says why; 2, the command was used
  wrongly; 130, Ctrl-C.
- **Options of many verbs**, which are only named below:

  - **`--config`**, **`-c`**: the configuration file; else the one in `HOLESHOT_CONFIG`, else `config/gateway.yaml`.
  - **`--json`**: print JSON.
  - **`--url`**: the running gateway; else host and port of the configuration.
  - **`--key`**: the key of an admin, an operator or a viewer, if keys are required.
"""
_DEFAULT = re.compile(r"\s*\[default: (?P<what>.*)\]$")
_EXAMPLE = "Example: "
# Options that the head explains, and how their help begins.
_SHARED = {
    "--config": "Configuration file",
    "--json": "Print",
    "--url": "URL of the running gateway",
    "--key": "The key of an admin",
}


def page() -> str:
    """Return the text of docs/reference/command-line.md."""
    lines, told = [_HEAD], dict[tuple[str, str], str]()  # the verb that has said what an option does
    for name, command in _commands("holeshot", typer.main.get_command(application())):
        lines += [f"## {code(name)}", "", *_words(command.help or ""), ""]
        shared, known = list[str](), dict[str, list[str]]()
        for each in command.params:
            if each.name == "help" or (each.param_type_name == "option" and each.hidden):
                continue
            names = [each.name] if each.param_type_name == "argument" else [*each.opts, *each.secondary_opts]
            text = str(getattr(each, "help", None) or "")
            if _is_shared(names[0], text):
                shared.append(code(names[0]))
                continue
            if (before := told.setdefault((names[0], text), name)) != name:
                known.setdefault(before, []).append(code(names[0]))
            else:
                lines += _entry(names, each)
        also = [", ".join(shared)] if shared else []
        also += [f"{', '.join(some)}, as for {code(before)}" for before, some in known.items()]
        lines += [f"Also {'; '.join(also)}.", ""] if also else []
    return "\n".join(lines).rstrip() + "\n"


def _entry(names: Sequence[str], one: Any) -> list[str]:
    text = str(getattr(one, "help", None) or "")
    written = _DEFAULT.search(text)
    default = written["what"] if written else _default(one)
    facts = [
        *(["argument"] if one.param_type_name == "argument" else []),
        *(["required"] if one.required else [f"default: {marked(default)}"] if default else []),
    ]
    shown = ", ".join(f"**{code(each)}**" for each in names) + (f" ({'; '.join(facts)})" if facts else "")
    return [shown, f": {marked(_DEFAULT.sub('', text))}", ""]


def _is_shared(name: str, text: str) -> bool:
    """Return whether the head of the page explains an option, and its own help says no more."""
    return text.startswith(_SHARED.get(name, "?"))


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
    """Return a help text as Markdown, with the first of its examples; what is preformatted is left out."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        plain = " ".join(block.split())
        if block.lstrip().startswith("\b"):
            continue  # a list for the terminal, which a page of its own has for readers
        if not plain.startswith(_EXAMPLE):
            lines += [marked(plain), ""]
        elif "```text" not in lines:
            lines += ["```text", plain.removeprefix(_EXAMPLE), "```", ""]
    return lines[:-1]


def _default(one: Any) -> str:
    value = one.default
    if value is None or value is False or callable(value) or value in ([], ()):
        return ""
    return "yes" if value is True else code(str(getattr(value, "value", value)))
