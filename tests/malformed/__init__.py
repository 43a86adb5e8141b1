"""Random malformed inputs: each is a clear error or a valid value; none hangs, none raises anything else.

1,480 of them in every run of the tests, always the same; ``make faults`` runs ``MALFORMED_TIMES`` as many, drawn anew.
"""
