"""The process: start, signals, workers, reloads, end."""
