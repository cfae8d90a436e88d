"""What a call costs beside a pass-through proxy and nginx, against what was promised: ``make bench``."""
