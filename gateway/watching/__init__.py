"""Observability: the running gateway's log and metrics."""
