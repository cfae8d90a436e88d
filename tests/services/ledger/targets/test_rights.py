"""A gateway whose role owns nothing counts too, with the rights that it needs; on Postgres."""

import asyncpg
from sqlalchemy.engine import make_url

from gateway.core.targets import Definition, Target
from gateway.ledger import TargetCounting, create_engine
from tests.services.ledger.targets.conftest import NOW, Desk, some_calls

TARGETS = [Target("t", Definition(model="llama", ttft_ms=500.0, tok_s=45.0), 0.99)]


async def test_who_may_store_calls_may_count_them(postgres_url: str) -> None:
    owner = await asyncpg.connect(postgres_url)
    role = f"counter_{make_url(postgres_url).database}"
    await owner.execute(f"create role {role} login")
    try:
        for table in ("calls", "attempts", "refusals", "outages"):
            await owner.execute(f"grant select, insert on {table} to {role}")
        await owner.execute(f"grant select, insert, update, delete on target_counts to {role}")
        await owner.execute(f"grant select on rollup_calls to {role}")
        desk = Desk(postgres_url)
        await desk.store(*some_calls(50, days=20))
        url = make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
        engine = create_engine(url)
        counting = TargetCounting(url, lambda: TARGETS, utc_now=lambda: NOW, clock=lambda: 0.0)
        assert await counting.count(engine) > 0
        await engine.dispose()
        await desk.engine.dispose()
    finally:
        await owner.execute(f"drop owned by {role}")
        await owner.execute(f"drop role {role}")
        await owner.close()
