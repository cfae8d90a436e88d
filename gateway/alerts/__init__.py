"""Alerts: one message for each incident, with the SQL that shows its evidence; and what detects who got slower."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
