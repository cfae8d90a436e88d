"""How the plain events of a chat's stream are recognised: those that add content and say nothing else."""

import re
from functools import partial

from providers.dialects import pattern

learned = partial(pattern.learned, opening=re.compile(rb'"content": ?"'))  # the texts of its events
