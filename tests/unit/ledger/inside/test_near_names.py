"""What a wrong name may have meant is told with the database's error."""

import pytest

from gateway.ledger.near_names import advice

COLUMNS = {
    "calls": ["id", "started_at", "ttft_ms", "total_ms"],
    "calls_20261129": ["id"],
    "race_value_24h": ["model", "n", "saved_ms"],
    "throughput": ["deployment", "ttft_p50_ms", "ttft_p95_ms"],
    "rollup_calls": ["n"],
}
VIEWS = {"race_value_24h", "throughput"}


@pytest.mark.parametrize(
    ("said", "sql", "told"),
    [
        (
            "no such table: trougput",
            "select * from trougput",
            "trougput; did you mean 'throughput'? The views are race_value_24h, throughput; tables: calls",
        ),
        (
            'relation "public.race_value_1d" does not exist',
            "select * from public.race_value_1d",
            "; did you mean 'race_value_24h'? The views are race_value_24h, throughput; tables: calls",
        ),
        ("no such table: zzz", "select * from zzz", "; the views are race_value_24h, throughput; tables: calls"),
        ("no such column: c.tftt_ms", "select c.tftt_ms from calls as c", "; did you mean 'ttft_ms' or 'total_ms'?"),
        ('column "p95" does not exist', "select p95 from throughput", "; did you mean 'ttft_p95_ms'?"),
        ("no such column: xyz", "select xyz from race_value_24h", "; race_value_24h has model, n, saved_ms"),
        ("no such column: xyz", "select xyz", "no such column: xyz"),
        ('column reference "n" is ambiguous', "select n from throughput", 'column reference "n" is ambiguous'),
    ],
)
def test_the_nearest_name_is_told_or_those_that_there_are(said: str, sql: str, told: str) -> None:
    assert advice(said, sql, COLUMNS, VIEWS).endswith(told)
