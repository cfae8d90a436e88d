"""Columns of views are named in one way, which docs/reference/ledger.md states: what, statistic, unit."""

import asyncio
import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing

import msgspec
import pytest

from gateway import __version__
from gateway.core.old_names import GONE_WITH, old_names
from gateway.core.reports import HeatMetric, HistorySeries
from gateway.ledger import head_revision, migrate
from gateway.ledger.schema import renamed, views_of
from gateway.steering import Row

VIEWED = tuple(
    name for name in views_of(head_revision()) if not name.startswith("rollup_")
)  # sums have names of tables
# What is no figure: whose, when and what kind.
WORDS = frozenset(
    (
        *(
            "model",
            "deployment",
            "provider",
            "client",
            "address",
            "replica",
            "region",
            "team",
            "end_user",
            "tag",
            "value",
            "a",
            "b",
        ),
        *("day", "hour", "month", "window_start", "open_since", "slot", "bucket", "prompt_class"),
        *("rank", "speed_rank", "state", "basis", "verdict", "reason", "judged_as", "flaw"),
        *("error_kind", "status_code", "last_message"),
        "audited",  # samples: the column of attempts
    )
)
# What only a gateway tells of a deployment, and the instants of a history.
OF_A_GATEWAY = frozenset({"headroom", "score", "in_flight", "probed_s_ago", "held", "refuses", "t"})
UNITS = ("ms", "s", "usd", "tps", "rps", "tokens", "share", "rate", "at", "variance")  # the last in its unit's square
RATIOS = ("per call", "per minute")  # of what is counted: extra_per_call
STATISTICS = ("p01", "p05", "p50", "p95", "p99", "mean", "difference", "per call", "7d", "24h", "low", "high")


def is_named_so(name: str) -> bool:
    """Whether it is a word, a count, a yes or no, or a figure: what, then statistics, then the only unit."""
    if name in WORDS or name == "n" or re.fullmatch(r"(n|is)(_[a-z0-9]+)+", name):
        return True
    *said, unit = re.sub(r"_per_(call|minute)\b|_per_(call)_", r"_per \1\2_", name).rstrip("_").split("_")
    if unit not in UNITS:
        return unit in RATIOS and not {*said} & {*UNITS, *STATISTICS}
    while said and said[-1] in STATISTICS:
        said.pop()
    return not {*said} & {*UNITS, *STATISTICS}


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    path = tmp_path_factory.mktemp("ledger") / "ledger.db"
    asyncio.run(migrate(f"sqlite:///{path}"))
    with closing(sqlite3.connect(path)) as connection:
        return {name: [row[1] for row in connection.execute(f"pragma table_info({name})")] for name in VIEWED}


@pytest.mark.parametrize("view", VIEWED)
def test_each_column_of_a_view_is_named_so_or_is_an_old_name_of_one(
    view: str, columns: Mapping[str, list[str]]
) -> None:
    old = renamed(view)
    assert [name for name in columns[view] if name not in old and not is_named_so(name)] == []
    assert columns[view][len(columns[view]) - len(old) :] == list(old)
    assert set(old.values()) <= set(columns[view]) - set(old)


@pytest.mark.parametrize(
    "name",
    [
        *("decode_tps_p95", "saved_ms_per_call", "cached_share_7d", "tokens_mean", "calls", "censored", "biased"),
        *("failed_share_difference", "tps_ok_share", "share_low", "low_cost_usd", "ttft_ms_p50", "new_thing"),
    ],
)
def test_a_name_that_says_it_otherwise_is_found(name: str) -> None:
    assert not is_named_so(name)


@pytest.mark.parametrize("answer", [Row, HistorySeries])
def test_fields_of_answers_are_named_as_columns_and_have_their_old_names_beside_them(
    answer: type[msgspec.Struct],
) -> None:
    old = old_names(answer)
    own = [name for name in answer.__struct_fields__ if name not in old]
    assert [name for name in own if name not in WORDS | OF_A_GATEWAY and not is_named_so(name)] == []
    assert own == list(answer.__struct_fields__[: len(own)])
    assert set(old.values()) <= {*own}
    required = msgspec.structs.fields(answer)[: len(own)]
    whole = answer(**{each.name: number for number, each in enumerate(required)})
    sent = msgspec.to_builtins(whole)
    assert {name: sent[name] for name in old} == {name: sent[new] for name, new in old.items()}
    changed = msgspec.to_builtins(msgspec.structs.replace(whole, **dict.fromkeys(old.values(), 99)))
    assert {changed[name] for name in old} == {99}


def test_a_heat_map_can_be_asked_for_by_the_old_name_of_its_figure() -> None:
    assert HeatMetric("tps_p50") is HeatMetric.DECODE_P50
    assert msgspec.convert({"metric": "tps_p50"}, dict[str, HeatMetric]) == {"metric": HeatMetric.DECODE_P50}
    with pytest.raises(ValueError, match="tps_p51"):
        HeatMetric("tps_p51")


def test_old_names_go_with_a_version_that_is_not_there_yet() -> None:
    """Once it is: a revision makes the views without them, and `RENAMED` is for those before it."""
    assert tuple(map(int, __version__.split(".")[:2])) < tuple(map(int, GONE_WITH.split(".")[:2]))
