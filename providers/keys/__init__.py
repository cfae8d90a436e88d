"""The keys of a provider: which is used, how one is replaced, and what has to be fetched."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
