"""``holeshot keys``: makes, lists, changes, rotates and revokes clients' keys; a file for each verb."""
