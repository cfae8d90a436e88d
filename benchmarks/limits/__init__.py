"""Limits of clients and models, over four replicas with faults: what was used, beside what was allowed."""
