"""The bytes of requests and answers, in any API: events, halves of characters, and what is large."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
