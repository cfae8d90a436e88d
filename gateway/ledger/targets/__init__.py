"""Targets in SQL: the calls that count, the bad calls among them, and sums so that a month is read fast."""
