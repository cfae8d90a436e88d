"""An HTTP client for races, for HTTP/1.1 and HTTP/2: a lost exchange is dropped at once, at little cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
