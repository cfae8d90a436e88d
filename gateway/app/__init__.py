"""Composes a gateway from its settings: the only room with access to all others."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
