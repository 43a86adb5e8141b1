"""Arguments of a planted file, which may change for the processes that are forked from the one that has loaded it."""

import json
import os
import sys
from collections.abc import Callable


def follow(take: Callable[..., None]) -> None:
    """Give ``take`` the arguments of this file now; with ``@FILE`` as the only one, those that FILE holds as a JSON list.

    Each forked child is given those that FILE holds then: the process that has loaded the file serves several kinds, as
    long as they show in model, loss or optimizer. Not kinds of data: whoever loads a file looks at its data.
    """
    words = sys.argv[1:]
    if not words or not words[0].startswith("@"):
        take(*words)
        return

    def read() -> None:
        with open(words[0][1:]) as file:
            take(*json.load(file))

    read()
    os.register_at_fork(after_in_child=read)
