"""How many calls a process takes on at once: the loop's delay, the limit it sets, the queue, and who is refused."""
