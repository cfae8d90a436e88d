"""How plain events of a chat stream are recognised: those that only add content."""

import re
from functools import partial

from providers.dialects import pattern

learned = partial(pattern.learned, opening=re.compile(rb'"content": ?"'))  # what precedes the text
