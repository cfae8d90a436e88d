"""What another setting would have done, from the ledger's own attempts. Pure: it takes rows and returns figures."""
