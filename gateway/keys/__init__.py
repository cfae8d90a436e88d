"""Clients' keys at run time: those of the file and of the database, their validity, and their changes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
