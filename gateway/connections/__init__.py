"""Connections from clients: how they are accepted, how many, for how long, and when no more."""
