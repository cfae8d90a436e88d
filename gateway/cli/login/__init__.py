"""``holeshot login`` and ``holeshot token``: sign in on a laptop, at the identity provider that a gateway names.

Only the extra ``login`` is needed, and no part of the gateway: these commands also run on Windows.
"""
