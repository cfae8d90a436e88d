"""The race engine: runs a plan's launches until one attempt has answered."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
