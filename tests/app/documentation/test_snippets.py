"""Each block of code on the pages works, or says above it why it is not run: ``<!-- not run: reason -->``."""

import asyncio
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
import yaml
from typer.testing import CliRunner

from gateway.cli.main import application
from gateway.settings import json_schema
from providers import Vendor, load_catalog
from tests.app.documentation.snippets import (
    CONFIGURATIONS,
    ROOT,
    RUN,
    SHELL,
    SHOWN,
    Snippet,
    pages,
    snippets,
    snippets_in,
)
from tests.app.gateway.process import GatewayProcess, ran
from tests.patience import PATIENCE_S
from tests.support.searched import some
from tests.support.warm import holeshot

_WRITTEN = re.compile(r"(?:127\.0\.0\.1|localhost):4000")  # where the pages say that the gateway listens
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_VALUES = {
    "DATABASE_URL": "postgresql://holeshot:made-up@database/holeshot",
    "REDIS_URL": "redis://made-up:6379/0",
    "_URL": "https://made-up.example",
    "_SHA256": "f" * 64,
    "SECRET": "whsec_bWFkZSB1cCwgYW5kIHRoaXJ0eS10d28gYnl0ZXMgbG9uZyE=",
}
_CATALOG = load_catalog()


@pytest.mark.parametrize("page", pages())
def test_a_block_is_run_or_says_why_not(page: str) -> None:
    unknown = [
        f"{each}: {each.language or 'no language'}"
        for each in snippets_in(page, (ROOT / page).read_text(encoding="utf-8"))
        if each.reason is None and each.language not in RUN | SHOWN
    ]
    assert unknown == []


def test_a_block_says_that_it_is_not_run_in_the_line_above_it() -> None:
    text = "<!-- not run: needs a key -->\n```bash\na\n```\n\n- x:\n\n  ```sql sqlite\n  b\n  ```\n```{image} c\n```\n"
    assert snippets_in("p", text) == [
        Snippet("p", 2, "bash", "", "a\n", "needs a key"),
        Snippet("p", 8, "sql", "sqlite", "b\n", None),
    ]


def test_json_can_be_read() -> None:
    for snippet in snippets("json"):
        json.loads(snippet.text)


@pytest.mark.parametrize("snippet", [each for each in snippets("yaml") if each.variant in CONFIGURATIONS], ids=str)
def test_a_configuration_is_accepted(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = check(snippet.text, tmp_path, monkeypatch)
    assert checked == (0, "")


def shown_for_coding_agents() -> tuple[str, str]:
    """Return the guide's page, and the configuration that it shows."""
    page = (ROOT / "docs" / "guides" / "coding-agents.md").read_text(encoding="utf-8")
    (shown,) = [each.text for each in snippets_in("coding-agents", page) if "teams:" in each.text]
    return page, shown


def test_the_budgets_in_the_guide_for_coding_agents_count_every_deployment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shown = shown_for_coding_agents()
    assert check(shown, tmp_path, monkeypatch) == (0, "")
    said = CliRunner().invoke(application("check"), ["check", "--config", "gateway.yaml"]).output
    assert "openai/gpt-6.1-sol" in said
    assert "price unknown" not in said


def test_the_providers_that_the_guide_for_coding_agents_keeps_to_are_those_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``only`` takes the names under ``providers:``, which need not be those of vendors."""
    page, shown = shown_for_coding_agents()
    (only,) = re.findall(r"`(only: \[.+?\])`", page)
    assert "{ key_sha256" in shown
    assert check(shown.replace("{ key_sha256", f"{{ {only}, key_sha256"), tmp_path, monkeypatch) == (0, "")


def test_a_configuration_with_an_unknown_key_is_not_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = check("models: { a: { deployments: [groq/b], race: { budgte: 1 } } }", tmp_path, monkeypatch)
    assert (code, "budgte" in said) == (1, True)


def check(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Have ``holeshot check`` read ``text``, made whole; return its exit code, and what is wrong if anything is."""
    config = whole(yaml.safe_load(_VARIABLE.sub(lambda match: value_of(match[1]), text)))
    monkeypatch.chdir(folder)
    for name in config["providers"]:
        if (vendor := _CATALOG.get(name)) is not None and vendor.key_env:
            monkeypatch.setenv(vendor.key_env[0], "made-up")  # as if the reader had set it
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    result = CliRunner().invoke(application("check"), ["check", "--config", str(path)])
    return result.exit_code, result.output if result.exit_code else ""


def value_of(variable: str) -> str:
    """Return a value that is fit for what ``variable`` is called."""
    for ending, value in _VALUES.items():
        if variable.endswith(ending):
            return value
    return f"made-up-{variable}"


@cache
def sections() -> frozenset[str]:
    """Return the names of a configuration's sections."""
    return frozenset(json_schema()["properties"])


def whole(part: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of which ``part`` is a part, with all that it names, needs and does not define."""
    assert part.keys() <= sections(), "not a configuration: mark it as not run, and say why"
    config = {"models": {}, "providers": {}, **part}
    for model in config["models"].values():
        model.setdefault("deployments", ["groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b"])
        for fallback in model.get("fallbacks", ()):
            name = fallback["model"] if isinstance(fallback, dict) else fallback
            if name not in config["models"]:
                config = {**config, "models": {**config["models"], name: {"deployments": ["groq/other"]}}}
    if not config["models"]:
        config["models"] = {"gpt-oss-120b": {"deployments": ["groq/openai/gpt-oss-120b", "cerebras/gpt-oss-120b"]}}
    for model in config["models"].values():
        for each in model["deployments"]:
            provider = (each["deployment"] if isinstance(each, dict) else each).partition("/")[0]
            config["providers"].setdefault(provider, named(provider))
    clients = with_clients(config)
    return {**config, "clients": clients} if clients else config


def with_clients(config: dict[str, Any]) -> dict[str, Any]:
    """Return the clients of ``config``, with those that it names or needs, each with a whole hash for one cut short."""
    clients = {**(config.get("clients") or {})}
    for target in (config.get("slo") or {}).values():
        if "client" in target:
            clients.setdefault(target["client"], {"key_sha256": "..."})
    if not clients and ("cors" in config or {"sign_in", "trusted_header"} & config.get("page", {}).keys()):
        clients["somebody"] = {"key_sha256": "..."}
    number = itertools.count()

    def with_whole(hashes: str | list[str]) -> str | list[str]:
        if isinstance(hashes, list):
            return [f"{next(number):064x}" if is_cut(each) else each for each in hashes]
        return f"{next(number):064x}" if is_cut(hashes) else hashes

    return {
        name: {**client, "key_sha256": with_whole(client["key_sha256"])} if "key_sha256" in client else client
        for name, client in clients.items()
    }


def is_cut(text: str) -> bool:
    """Return whether the page shows the beginning of ``text`` only, or nothing of it."""
    return text.endswith(("...", "…"))


def named(provider: str) -> Mapping[str, str]:
    """Return what ``provider`` needs: a key, and an address if no vendor has this name."""
    return {"api_key": "made-up"} if provider in _CATALOG else {"base_url": "http://127.0.0.1:9/v1"}


@pytest.mark.parametrize("snippet", snippets("toml"), ids=str)
def test_a_row_of_the_catalog_is_accepted(snippet: Snippet) -> None:
    rows = {name: {"name": name, **row} for name, row in tomllib.loads(snippet.text).items()}
    assert msgspec.convert(rows, dict[str, Vendor]).keys().isdisjoint(_CATALOG)


@pytest.mark.parametrize(
    "snippet", [each for each in snippets("python") if each.variant.startswith("gateway/cli/")], ids=str
)
def test_a_verb_of_the_command_line_works(snippet: Snippet, tmp_path: Path) -> None:
    file = tmp_path / Path(snippet.variant).name
    file.write_text(snippet.text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    verbs = typer.Typer()
    verbs.command()(getattr(module, file.stem))
    result = CliRunner().invoke(verbs, ["--config", str(file)])
    assert (result.exit_code, result.output) == (0, f"{file}\n")


def test_whatever_a_shell_or_python_is_given_is_marked_or_run() -> None:
    assert {each.page for each in snippets(*SHELL, "python")} >= {"docs/start.md"}


TYPED = sorted({each.page for each in snippets(*SHELL, "python") if not each.is_file})


@pytest.mark.parametrize("page", some(TYPED, always=["README.md", "docs/start.md"], drawn=3))
async def test_what_is_typed_works(page: str, tmp_path: Path, migrated_file: Path) -> None:
    async with demo(tmp_path, migrated_file) as run:
        for snippet in snippets(*RUN):
            if snippet.page == page and snippet.is_file:
                (tmp_path / snippet.variant).parent.mkdir(exist_ok=True)
                (tmp_path / snippet.variant).write_text(snippet.text, encoding="utf-8")
            elif snippet.page == page and snippet.language in {*SHELL, "python"}:
                code, said = await run(snippet)
                breaks = "holeshot race" in snippet.text and "the answer broke off" in said  # as real ones do
                assert code == 0 or breaks, f"{snippet}: {said}"


async def test_what_is_typed_wrongly_does_not_work(tmp_path: Path, migrated_file: Path) -> None:
    async with demo(tmp_path, migrated_file) as run:
        wrong = Snippet("p", 1, "bash", "", "holeshot sql 'select no_such_column from calls'\ntrue\n", None)
        code, said = await run(wrong)
    assert (code, "no_such_column" in said) == (1, True)


Run = Callable[[Snippet], Any]


@asynccontextmanager
async def demo(folder: Path, migrated: Path) -> AsyncIterator[Run]:
    """Serve the simulated providers, as ``holeshot serve`` does without keys; yield what runs a block against them.

    ``migrated``: a ledger without rows, to begin with a copy of.
    """
    (folder / "var").mkdir()
    shutil.copy(migrated, folder / "var" / "holeshot.db")
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HOLESHOT_") and not name.endswith(("_KEY", "_TOKEN"))
    }
    environ = {**clean, "PYTHONPATH": str(ROOT), "PATH": f"{folder / '.venv' / 'bin'}{os.pathsep}{clean['PATH']}"}
    shim = folder / ".venv" / "bin" / "holeshot"  # where `make run` puts it
    shim.parent.mkdir(parents=True)
    shim.write_text(f'#!/bin/sh\nexec {" ".join(holeshot())} "$@"\n', encoding="utf-8")
    shim.chmod(0o755)
    process = await asyncio.create_subprocess_exec(
        *holeshot(), "serve", "--port", "0", cwd=folder, env=environ, stderr=asyncio.subprocess.PIPE
    )
    gateway = GatewayProcess(process)

    async def run(snippet: Snippet) -> tuple[int | None, str]:
        text = _WRITTEN.sub(gateway.url.removeprefix("http://"), snippet.text)
        command = (
            ("bash", "-euo", "pipefail", "-c", text) if snippet.language in SHELL else (sys.executable, "-c", text)
        )
        # A block starts some processes, one after the other.
        asked = {**environ, "HOLESHOT_URL": gateway.url}
        return await ran(*command, cwd=folder, env=asked, within_s=3 * PATIENCE_S)

    try:
        async with asyncio.timeout(PATIENCE_S):
            gateway.url = (await gateway.event("gateway.started"))["url"]
        yield run
    finally:
        process.send_signal(signal.SIGINT)  # after SIGTERM it would go on answering for a while
        await gateway.ended()
