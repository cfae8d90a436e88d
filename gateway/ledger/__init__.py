"""The ledger: every call and every attempt as a row of SQL, shipped through a spool on local disk."""
