"""Limits: what clients and models may use, in all replicas together."""
