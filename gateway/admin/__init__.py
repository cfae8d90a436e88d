"""HTTP for operators: the page, its API, keys, and the OpenAPI document."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
