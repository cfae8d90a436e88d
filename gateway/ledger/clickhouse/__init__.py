"""ClickHouse as a second place for finished calls and attempts: written from the spool, read only when you ask it."""
