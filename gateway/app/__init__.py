"""Composes a gateway from its settings: the one room that knows all others."""
