"""Reports made from the ledger for the page, on connections of their own."""
