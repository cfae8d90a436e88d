"""Targets (``slo:``): the share of calls that is to be good, its error budget, and the burn rate."""
