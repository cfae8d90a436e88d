"""Sixteen ways in which a provider fails, and what the client gets of each."""
