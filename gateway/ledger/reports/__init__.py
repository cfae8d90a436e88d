"""Reports from the ledger for the page, over connections of their own."""
