"""Run every query of the dashboards, and the alert rules, in a real Prometheus that scrapes a real gateway.

``make test WHAT=monitoring`` runs it, in a minute. A query without a result fails, unless its panel says that it is
empty when all is well. It needs prometheus and promtool; what it installs, and its logs, are in ``var/monitoring``.
"""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402 - the checkout is found by the line above
from rich.console import Console  # noqa: E402 - likewise
from rich.table import Table  # noqa: E402 - likewise

from tests.monitoring.panels import filled, queries, variables  # noqa: E402 - likewise
from tests.monitoring.prometheus import Answer, Prometheus, missing, prometheus  # noqa: E402 - likewise
from tests.monitoring.traffic import traffic  # noqa: E402 - likewise
from tests.monitoring.troubled import troubled_providers  # noqa: E402 - likewise
from tests.real.checks import Checks  # noqa: E402 - likewise
from tests.real.programs import running  # noqa: E402 - likewise
from tests.support.servers import free_port, postgres, redis_server  # noqa: E402 - likewise

VAR = ROOT / "var" / "monitoring"
FOLDER = ROOT / "config" / "monitoring"
RULES = FOLDER / "holeshot.rules.yml"
SECONDS = 30.0
KEYS = {name: f"hs-{name}" for name in ("team-a", "team-b", "team-c", "prometheus")}
# What the providers' and clients' faults below must at least have begun to fire.
EXPECTED = {
    "HoleshotCallsFail",
    "HoleshotClientDollarsGone",
    "HoleshotDeploymentOut",
    "HoleshotRateLimitNear",
}


def main() -> int:
    """Run it all; return the exit code."""
    if lacking := missing():
        _say(f"it needs {' and '.join(lacking)}; on Debian: apt-get install prometheus")
        return 2
    VAR.mkdir(parents=True, exist_ok=True)
    checks = Checks()
    _check_files(checks)
    with ExitStack() as stack:
        _say("starting Postgres, Redis, the simulated fleet, a gateway and Prometheus ...")
        environ, url = _gateway(stack)
        target = url.removeprefix("http://")
        asked = stack.enter_context(
            prometheus(VAR, target=target, key=KEYS["prometheus"], rules=RULES, environ=environ)
        )
        begun_s = time.time()
        _say(f"calling for {SECONDS:.0f} s, with failures, rate limits and refusals ...")
        statuses = asyncio.run(traffic(url, KEYS, SECONDS))
        _say(f"requests by status: {dict(sorted(statuses.items()))}")
        checks.that({200, 401, 404, 429} <= statuses.keys(), "there were answers, wrong keys, names and limits")
        checks.that(any(status >= 500 for status in statuses), "there were failed calls")
        _check_panels(checks, asked, begun_s)
        _check_alerts(checks, asked)
    return checks.exit_code()


def _check_files(checks: Checks) -> None:
    """Hold what is committed against what the code makes, and let promtool look at it."""
    current = subprocess.run([sys.executable, "-m", "tools.monitoring", "--check"], cwd=ROOT, check=False)
    checks.that(current.returncode == 0, "the committed files are what python -m tools.monitoring makes")
    for command in (
        ["check", "rules", RULES.name],
        ["test", "rules", "holeshot.tests.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
    ):
        done = subprocess.run(["promtool", *command], cwd=FOLDER, check=False, capture_output=True, text=True)
        checks.that(done.returncode == 0, f"promtool {' '.join(command)}")
        if done.returncode:
            _say(done.stdout + done.stderr)


def _check_panels(checks: Checks, asked: Prometheus, begun_s: float) -> None:
    table = Table(title="Every query of the dashboards", title_justify="left")
    for column in ("board", "panel", "", "series", "one value"):
        table.add_column(column, justify="right" if column in {"series", "one value"} else "left")
    for file in sorted(FOLDER.glob("dashboards/*.json")):
        everything, one = _choices(checks, asked, file)
        for query in queries(file):
            found = _found(asked, filled(query.expr, everything), begun_s, is_instant=query.is_instant)
            _found(asked, filled(query.expr, one), begun_s, is_instant=query.is_instant)  # it must be a query, too
            told = "" if found.value is None else f"{found.value:.6g}"
            is_fine = found.series > 0 or query.may_be_empty
            note = told if found.series else "empty, as it may be" if is_fine else "[red]EMPTY[/]"
            table.add_row(query.board, query.panel, query.letter, str(found.series), note)
            if not is_fine:
                checks.that(False, f"{query.board}: {query.panel} {query.letter} has a result: {query.expr}")  # noqa: FBT003 - it has none
    Console(width=110).print(table)
    checks.that(table.row_count > 0, f"{table.row_count} queries were run")


def _choices(checks: Checks, asked: Prometheus, file: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the variables of a board with everything chosen, and with one value of each."""
    everything: dict[str, str] = {}
    one: dict[str, str] = {}
    for variable in variables(file):
        series = filled(variable.series, everything)
        values = asked.get(f"label/{variable.label}/values", **{"match[]": series})
        checks.that(bool(values), f"{file.stem}: ${variable.name} has values: {', '.join(values)}")
        everything[variable.name] = variable.all_value
        one[variable.name] = values[0] if values else ""
    return everything, one


def _found(asked: Prometheus, expr: str, begun_s: float, *, is_instant: bool) -> Answer:
    """What is shown of an instant is asked for one within the traffic: later there may be no rate."""
    return asked.at_once(expr, begun_s + SECONDS - 2) if is_instant else asked.over(expr, begun_s, time.time())


def _check_alerts(checks: Checks, asked: Prometheus) -> None:
    rules = [rule for group in asked.get("rules")["groups"] for rule in group["rules"]]
    broken = [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] != "ok"]
    checks.that(not broken, f"Prometheus evaluates all {len(rules)} rules {broken or ''}")
    states = asked.alerts()
    checks.that(states.keys() >= EXPECTED, f"alerts that these faults begin: {states}")
    checks.that("HoleshotDown" not in states, "the gateway was reached at each scrape")


def _gateway(stack: ExitStack) -> tuple[dict[str, str], str]:
    """Run a gateway with everything that it needs; return its environment and its URL."""
    database_url = stack.enter_context(postgres())
    redis_url = stack.enter_context(redis_server())
    fleet = stack.enter_context(_fleet())
    troubled = stack.enter_context(troubled_providers())
    port = free_port()
    config = VAR / "gateway.yaml"
    settings = _settings(fleet, {**troubled, "dead": f"http://127.0.0.1:{free_port()}/v1"})
    stores = {"database_url": database_url, "redis_url": redis_url, "spool_dir": str(VAR / "spool"), "lame_duck_s": 0}
    config.write_text(yaml.safe_dump({**stores, **settings}))
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HOLESHOT_")}
    environ |= {"HOLESHOT_CONFIG": str(config), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    holeshot = [sys.executable, str(ROOT / "holeshot")]
    subprocess.run([*holeshot, "migrate"], env=environ, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    command = [*holeshot, "serve", "--port", str(port)]
    stack.enter_context(running(command, log=VAR / "gateway.log", health_url=f"{url}/health/ready", environ=environ))
    return environ, url


@contextmanager
def _fleet() -> Iterator[Mapping[str, str]]:
    """Run the demo fleet; yield its base URLs by name."""
    command = [sys.executable, "-m", "providers.simulator", "--seed", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.stdin.close()


def _settings(fleet: Mapping[str, str], troubled: Mapping[str, str]) -> dict[str, Any]:
    """Return providers, models and clients: healthy ones, and some with each fault."""

    def deployment(name: str, **more: Any) -> dict[str, Any]:
        return {"deployment": f"{name}/demo-chat", "price_per_mtok": {"input": 1, "output": 2}, **more}

    def client(name: str, **more: Any) -> dict[str, Any]:
        return {"key_sha256": hashlib.sha256(KEYS[name].encode()).hexdigest(), **more}

    first, *others = fleet
    return {
        "providers": {name: {"apis": ["chat"], "base_url": url} for name, url in {**fleet, **troubled}.items()},
        "models": {
            "demo-chat": {
                "deployments": [deployment(name) for name in fleet],
                "usd_per_day": 50,
                "race": {"mode": "race", "width": 2, "budget": 0.5, "usd_per_day": 0.0005},
            },
            "troubled": {"deployments": [deployment(name) for name in ("rejecting", "limited", others[0])]},
            "narrow": {"deployments": [deployment(first, max_in_flight=1)]},
            "scarce": {"deployments": [deployment("scarce", upstream_stream=False)]},
            "broken": {"deployments": [deployment("dead")]},
        },
        "clients": {
            "team-a": client("team-a"),
            "team-b": client("team-b", rpm=60, usd_per_day=0.001),
            "team-c": client("team-c", usd_per_day=10),
            "prometheus": client("prometheus", role="viewer"),
        },
        "overload": {"max_in_flight": 20, "queue": 10},
    }


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - for who runs it


if __name__ == "__main__":
    sys.exit(main())
