"""OpenTelemetry traces: spans made of the records of calls, and exported in a thread."""
