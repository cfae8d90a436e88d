"""Probes: small calls of the gateway's own to deployments that nobody calls, so that their figures stay fresh."""
