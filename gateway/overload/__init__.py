"""Overload control of a process: the event loop's delay, the limit of calls in flight, the queue, and refusals."""
