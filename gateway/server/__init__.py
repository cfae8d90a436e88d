"""The process: start, signals, workers, reloads, end; and what accepts, drains and cuts connections of clients."""
