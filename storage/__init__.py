"""The ledger: every search and every probe, in SQL. The only room that speaks it; ``store.Store`` is its front door."""
