from .renewal import PAUSE_S as PAUSE_S
from .renewal import Fetched as Fetched
from .renewal import Renewal as Renewal
from .ring import KeyRing as KeyRing
from .rotation import Keys as Keys
from .rotation import RotatedKey as RotatedKey
from .rotation import Rotation as Rotation
