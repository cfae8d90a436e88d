"""Probes: small calls of the gateway's own to deployments without calls, so that their figures stay fresh."""
