"""Probes: the gateway's own small calls to deployments without calls, so that their figures stay fresh."""
