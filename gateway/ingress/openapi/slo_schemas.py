"""The schema of where a target stands."""

from gateway.ingress.openapi.operation import TEXT, array, count, nullable, number, record, text
from gateway.ingress.openapi.page_schemas import SQL

BURN = record(
    {
        "window_s": count("Of the last so many seconds."),
        "calls": count(),
        "bad": count(),
        "burn_rate": nullable(number("1 spends the budget just within the target's days; null without calls.")),
        "sql": SQL,
    }
)
STANDING = record(
    {
        "name": TEXT,
        "model": nullable(text("Whose calls; null: any.")),
        "client": nullable(TEXT),
        "profile": nullable(TEXT),
        "ttft_ms": nullable(number("The first token comes sooner.")),
        "tok_s": nullable(number("At least, after it.")),
        "gap_ms": nullable(number("The longest between two chunks.")),
        "objective": number("The share of calls that is to be good."),
        "days": count("Over how long."),
        "subject": text("Whose calls, in words."),
        "condition": text("What a good call is, in words."),
        "calls": count("That count: docs/targets.md."),
        "bad": count(),
        "failed": count("Of the bad ones."),
        "late": count("Of the bad ones: the first token came too late, or the client left before it."),
        "slow": count("Of the bad ones."),
        "halting": count("Of the bad ones: with too long a gap."),
        "good_share": nullable(number()),
        "budget_left": nullable(number("The share of the error budget; below 0 the target is missed.")),
        "burns": array(BURN),
        "verdict": text("Whether it is kept, in words."),
        "sql": SQL,
        "misses_sql": text("A statement that lists its newest bad calls."),
    }
)
