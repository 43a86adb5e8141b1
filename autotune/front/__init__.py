"""Composes the rooms: a workload, a prober, a strategy and a ledger become an answer. What ``api`` offers is done here."""
