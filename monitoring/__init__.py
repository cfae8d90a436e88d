"""Dashboards, alert rules and the list of metrics as code: ``python -m monitoring`` writes what they make."""
