"""Targets in SQL: which calls count, which of them were bad, and the sums that make a month quick to read."""
