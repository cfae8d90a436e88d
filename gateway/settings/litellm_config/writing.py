"""Writes a converted configuration as text: its sections, and at its end what is left to do."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gateway.settings.problems import Problem

_WIDTH = 120
_SHORT = 16  # characters of a word that may share a line with others
_HEAD = """\
# Holeshot's configuration, made from {source} by `holeshot import litellm`; `holeshot check` validates it. ${{NAME}} is
# taken from the environment, so no key stands in this file.
"""
_WORDS: Mapping[str, str] = {
    "database_url": "Where calls and attempts are logged.",
    "redis_url": "The leaderboard that gateways share.",
    "timeouts": "LiteLLM's time-outs limit the wait for the next bytes, not a whole answer; so do these two.",
    "providers": "The providers. You may leave out what the catalog has (base URL, quirks, prices).",
    "models": "What clients ask for, and the deployments (provider/model) that race to answer. LiteLLM sends each call"
    " once: budget 0 does that; 1.0 starts one extra attempt per call, which makes answers faster.",
    "clients": "Who may call.",
}


class _Dumper(yaml.SafeDumper):
    """Writes all values in full, without YAML aliases for shared ones."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002 - likewise
        """Indent the items of lists."""
        super().increase_indent(flow, indentless=False)


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> yaml.Node:
    """Write a short list of plain words in one line."""
    words = all(isinstance(item, str) and len(item) <= _SHORT and "{" not in item for item in data)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=words)


_Dumper.add_representer(list, _represent_list)


def written_file(config: Mapping[str, Any], source: str, notes: Sequence[Problem]) -> str:
    """Return the text of ``config``, one paragraph per section, with ``notes`` as comments at the end."""
    parts = [_HEAD.format(source=" ".join(source.split()))]
    plain = [key for key in config if key not in _WORDS]
    parts += [_section(key, config[key]) for key in (*plain, *_WORDS) if config.get(key) not in (None, {}, [])]
    if notes:
        lines = "".join(_comment(_located(note, source), hanging="  ") for note in notes)
        parts.append(f"# To be done by hand, or converted differently:\n{lines}")
    return "\n".join(parts)


def _section(key: str, value: Any) -> str:
    words = _comment(_WORDS[key]) if key in _WORDS else ""
    return words + yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)


def _located(note: Problem, source: str) -> str:
    file = source if note.file is None else Path(note.file).name  # or an included one
    return str(Problem(note.message, file, note.line))


def _comment(text: str, hanging: str = "") -> str:
    lines = textwrap.wrap(
        " ".join(text.split()), _WIDTH - 2, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )
    return "".join(f"# {line}\n" for line in lines)
