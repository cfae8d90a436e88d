"""One part of the gateway at a time: instructions of a call, planning, recording, shipping, metrics."""
