"""ClickHouse as a second store of finished calls and attempts: written from the spool, read only by operators."""
