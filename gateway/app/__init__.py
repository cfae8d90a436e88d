"""Composes a gateway from its settings: the only room with access to all others."""
