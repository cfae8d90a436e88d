"""A real Prometheus that scrapes a gateway, and its HTTP API."""

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.real.programs import running
from tests.support.servers import free_port

SCRAPE_EVERY_S = 1
PROGRAMS = ("prometheus", "promtool")


def missing() -> list[str]:
    """Return the programs that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


class Answer(msgspec.Struct, frozen=True):
    """What a query found: how many series have a number, and one of them."""

    series: int
    value: float | None


class Prometheus:
    """The HTTP API of a running one."""

    def __init__(self, url: str) -> None:
        self._url = url

    def at_once(self, expr: str, unix_s: float) -> Answer:
        """Return what a query finds at one instant.

        Raises:
            RuntimeError: it is not a query.

        """
        return _answer([[each["value"]] for each in _rows(self.get("query", query=expr, time=str(unix_s)))])

    def over(self, expr: str, start_s: float, end_s: float) -> Answer:
        """Return what a query finds in a span of time.

        Raises:
            RuntimeError: it is not a query.

        """
        found = self.get("query_range", query=expr, start=str(start_s), end=str(end_s), step="2")
        return _answer([each["values"] for each in _rows(found)])

    def alerts(self) -> dict[str, str]:
        """Return the alerts of the last ten minutes: pending, or firing if they ever were, by name."""
        rows = _rows(self.get("query", query="max by (alertname, alertstate) (max_over_time(ALERTS[10m]))"))
        found = [(row["metric"]["alertstate"], row["metric"]["alertname"]) for row in rows]
        return {name: state for state, name in sorted(found, reverse=True)}  # pending first, firing overrides it

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an endpoint.

        Raises:
            RuntimeError: it refuses.

        """
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(url, timeout=10) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise RuntimeError(f"{parameters}: {said}") from None


@contextmanager
def prometheus(folder: Path, *, target: str, key: str, rules: Path, environ: Mapping[str, str]) -> Iterator[Prometheus]:
    """Run one that scrapes ``target`` each second as the job ``holeshot``."""
    port = free_port()
    config = folder / "prometheus.yml"
    scrape = {
        "job_name": "holeshot",
        "authorization": {"credentials": key},
        "static_configs": [{"targets": [target]}],
    }
    every = {"scrape_interval": f"{SCRAPE_EVERY_S}s", "evaluation_interval": f"{SCRAPE_EVERY_S}s"}
    config.write_text(yaml.safe_dump({"global": every, "rule_files": [str(rules)], "scrape_configs": [scrape]}))
    shutil.rmtree(folder / "prometheus", ignore_errors=True)  # an earlier run's series would hide a missing one
    command = [
        shutil.which("prometheus") or "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    ]
    url = f"http://127.0.0.1:{port}"
    with running(command, log=folder / "prometheus.log", health_url=f"{url}/-/ready", environ=environ):
        yield Prometheus(url)


def _rows(data: Any) -> list[Any]:
    if data["resultType"] == "scalar":
        return [{"value": data["result"]}]
    return list(data["result"])


def _answer(rows: list[list[list[Any]]]) -> Answer:
    """A series whose every value is NaN shows nothing: 0 / 0 is not a result."""
    numbers = [[float(value) for _, value in row if value != "NaN"] for row in rows]
    shown = [each for each in numbers if each]
    return Answer(len(shown), shown[0][-1] if shown else None)
