"""``serve`` puts a gateway on loopback, as for the tests of the gateway."""

from tests.app.gateway.conftest import folder, logged, serve

__all__ = ["folder", "logged", "serve"]
