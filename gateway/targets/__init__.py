"""Targets (``slo:``): what share of calls is to be how fast, what may be missed, and how fast that is spent."""
