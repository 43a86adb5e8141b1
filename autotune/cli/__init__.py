"""The command line: ``app.main`` is its entry point."""

import gc

_OBJECTS = 200_000
"""Made before garbage is looked for, from here on, since what the command line imports comes after this. Loading a ledger
makes 120,000, none of them garbage, and to look through them again and again took a tenth of the time of ``runs ls``."""

gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
