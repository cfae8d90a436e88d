"""Race two real LLM servers through a real gateway, with a real Postgres and Redis, and look at what it wrote down.

``make test WHAT=real`` runs it: the first time it compiles llama.cpp (five to twenty minutes, with its progress), later
it takes half a minute. What it installs, and its logs, are in ``var/real``.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import openai
import yaml

from tests.real import breaks, llama, tls
from tests.real.checks import Checks
from tests.real.programs import output, program, running, until
from tests.support.servers import free_port, postgres, redis_server

ROOT = Path(__file__).resolve().parents[2]
VAR = ROOT / "var" / "real"
CALLS = 10  # every second one streamed
MAX_TOKENS = 48
LEDGER_TIMEOUT_S = 15.0
PROMPTS = ("Why is the sky blue?", "Name three rivers.", "What is a gearbox?", "Tell me about bees.", "What is rain?")

CALL_ROWS = """
select right(id::text, 6) as id, streamed, mode, launched, status_code as status, round(ttft_ms::numeric, 1) as ttft_ms,
  round(total_ms::numeric) as total_ms, round(overhead_ms::numeric, 2) as overhead_ms, completion_tokens as tokens
from calls order by started_at
"""
ATTEMPT_ROWS = """
select right(call_id::text, 6) as call, number as n, role, deployment, outcome, round(ttft_ms::numeric, 1) as ttft_ms,
  round(censored_at_ms::numeric, 1) as censored_at_ms, completion_tokens as tokens, tokens_source as source,
  round(decode_tps::numeric, 1) as tok_s, error_kind
from attempts order by started_at, number
"""
FACTS = """
select streamed, launched, status_code, completion_tokens, winner_attempt_id is not null as answered,
  (select count(*) from attempts where call_id = calls.id) as attempts,
  (select count(*) from attempts where call_id = calls.id and outcome = 'won') as won,
  (select count(*) from attempts where call_id = calls.id and outcome in ('lost', 'superseded')) as cut
from calls order by started_at
"""


def main() -> int:
    """Run it all; return the exit code."""
    signal.signal(signal.SIGTERM, _leave)
    VAR.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    python = llama.install(VAR / ".venv")
    with ExitStack() as stack:
        _say("starting Postgres, Redis and two llama.cpp servers (SmolLM2 135M, one thread each) ...")
        database_url = stack.enter_context(postgres())
        redis_url = stack.enter_context(redis_server())
        servers = [stack.enter_context(llama.serving(python, name, VAR)) for name in ("llama-a", "llama-b")]
        for server in servers:
            _ask(openai.OpenAI(base_url=server.base_url, api_key="none"), "Hello", streamed=False)  # loads the weights
        environ = _configure(database_url, redis_url, servers)
        output(environ, "migrate")
        port = free_port()
        command = [program(), "serve", "--port", str(port)]
        health_url = f"http://127.0.0.1:{port}/health/ready"
        stack.enter_context(running(command, log=VAR / "gateway.log", health_url=health_url, environ=environ))
        _say(f"racing {CALLS} calls through the gateway with the openai package {openai.__version__} ...")
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0)
        answers = [_ask(client, PROMPTS[number % len(PROMPTS)], streamed=number % 2 == 0) for number in range(CALLS)]
        until(lambda: len(_facts(environ)) >= CALLS, LEDGER_TIMEOUT_S)
        _show(database_url, environ, CALL_ROWS)
        _show(database_url, environ, ATTEMPT_ROWS)
        _check_calls(checks, answers, _facts(environ))
        _check_losers(checks, servers, _facts(environ))
        breaks.check(checks, servers, VAR, _say)
    tls.check(checks, VAR, _say)
    return checks.exit_code()


def _ask(client: openai.OpenAI, prompt: str, *, streamed: bool) -> str:
    """Return the answer to ``prompt``."""
    messages: Any = [{"role": "user", "content": prompt}]
    if not streamed:
        whole = client.chat.completions.create(model=llama.MODEL, messages=messages, max_tokens=MAX_TOKENS)
        return whole.choices[0].message.content or ""
    stream = client.chat.completions.create(model=llama.MODEL, messages=messages, max_tokens=MAX_TOKENS, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def _check_calls(checks: Checks, answers: list[str], rows: list[Mapping[str, Any]]) -> None:
    checks.that(all(answers), f"{CALLS} calls were answered with text")
    checks.that(len(rows) == CALLS, f"each call has one row: {len(rows)} rows")
    checks.that(sum(row["streamed"] for row in rows) == CALLS // 2, "half of them say streamed")
    checks.that(all(row["attempts"] == row["launched"] == 2 for row in rows), "each call launched two attempts")
    checks.that(all(row["won"] == 1 and row["answered"] for row in rows), "each call has one winner")
    checks.that(all(row["cut"] == 1 for row in rows), "each call's loser was cut")
    # This server reports no usage in a stream, so the counts are estimates: characters / 4.
    checks.that(
        all(0 < row["completion_tokens"] <= 2 * MAX_TOKENS for row in rows),
        f"the tokens of the answers are plausible: {[row['completion_tokens'] for row in rows]}",
    )


def _check_losers(checks: Checks, servers: list[llama.Server], rows: list[Mapping[str, Any]]) -> None:
    cut = sum(row["cut"] for row in rows)
    with suppress(TimeoutError):
        until(lambda: sum(server.hang_ups for server in servers) >= cut, LEDGER_TIMEOUT_S)
    seen = {server.name: server.hang_ups for server in servers}
    checks.that(sum(seen.values()) == cut, f"the servers saw a client leave as often as the ledger says: {cut}, {seen}")


def _configure(database_url: str, redis_url: str, servers: list[llama.Server]) -> dict[str, str]:
    """Write the gateway's configuration; return the environment of its processes."""
    deployments = [f"{server.name}/{llama.MODEL}" for server in servers]
    settings = {
        "database_url": database_url,
        "redis_url": redis_url,
        "spool_dir": str(VAR / "spool"),
        "lame_duck_s": 0,
        "providers": {server.name: {"kind": "openai_compatible", "base_url": server.base_url} for server in servers},
        "models": {llama.MODEL: {"deployments": deployments, "race": {"mode": "race", "width": 2}}},
    }
    path = VAR / "gateway.yaml"
    path.write_text(yaml.safe_dump(settings))
    return {**os.environ, "HOLESHOT_CONFIG": str(path)}


def _facts(environ: Mapping[str, str]) -> list[Mapping[str, Any]]:
    return msgspec.json.decode(output(environ, "sql", "--json", FACTS), type=list[Mapping[str, Any]])


def _show(database_url: str, environ: Mapping[str, str], query: str) -> None:
    """Print rows as psql shows them, or where there is none as ``holeshot sql`` does."""
    psql = shutil.which("psql")
    if psql is None:
        _say(output(environ, "sql", "--csv", query))
        return
    shown = subprocess.run([psql, database_url, "-X", "-P", "pager=off", "-c", query], check=True, capture_output=True)
    _say(shown.stdout.decode().rstrip() + "\n")


def _leave(_number: int, _frame: object) -> NoReturn:
    sys.exit(1)  # through every block, so that everything that runs is ended


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
