"""A process of its own for the tests: opens a ledger when told to, appends probes, says what it did.

Started as ``python child.py URL SEARCH_ID COUNT [kill]``; prints ``ready``, waits for a line, then works.
"""

import os
import signal
import sys
from datetime import UTC, datetime

from autotune.model import Form, Measurement, Outcome, ProbeResult, Reason
from autotune.storage.store import Store


def main(url: str, search_id: str, count: int, *, die: bool) -> None:
    """Open, append ``count`` probes whose launcher is the process id, close or die."""
    print("ready", flush=True)
    sys.stdin.readline()
    with Store.open(url) as store:
        for size in range(1, count + 1):
            result = ProbeResult(
                batch_size=size,
                form=Form.SHORT,
                reason=Reason.GROW,
                outcome=Outcome.FITS,
                failure=None,
                measurement=Measurement(),
                budget_bytes=1 << 40,
                launcher=str(os.getpid()),
                started_at=datetime.now(UTC),
                seconds=0.5,
            )
            store.add_probe(search_id, result)
        if die:
            os.kill(os.getpid(), signal.SIGKILL)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), die=sys.argv[4:] == ["kill"])
