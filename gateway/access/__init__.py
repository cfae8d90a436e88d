"""Who asks, and what they may: keys, addresses and sessions of a request, and the client that it is of."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
