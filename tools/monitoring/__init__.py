"""Dashboards, alert rules and the list of metrics as code: ``python -m tools.monitoring`` writes what they make."""
