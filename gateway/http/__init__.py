"""What HTTP for clients and for operators shares: bodies of JSON, headers, WebSockets, and how aiohttp is used."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
