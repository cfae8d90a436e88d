from .tracing import Tracing as Tracing
