from .events import Viewer as Viewer
from .events import Wanted as Wanted
from .live import Live as Live
from .sharing import TIMEOUT_S as TIMEOUT_S
from .sharing import Sharing as Sharing
