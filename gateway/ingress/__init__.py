"""The HTTP API: one file per group of routes, and what they share: context, admission, bodies, headers, errors."""
