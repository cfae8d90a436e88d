"""How long tests wait for what must come: in one place, as every room of the tests waits for something.

It only ends a test that would hang, and is no measure: the machine may be slow, and busy with other things.
"""

PATIENCE_S = 120.0
