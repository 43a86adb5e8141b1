"""Deaths and troubles injected into real searches: ``make faults``, and a few of them in every run of the tests."""
