"""What does the ledger cost? Fills one with many probes, and times what searches and people ask of it.

    python benchmarks/ledger.py                                  # 100,000 probes in a SQLite file
    python benchmarks/ledger.py --storage postgresql+psycopg://me@host/db?schema=benchmark

Needs no torch and no device. Prints a Markdown table with command, machine and date. "A probe" is what a
search does for each: record the result, and its lease with it. ``--reader-seconds 20`` measures that again while somebody
else's transaction stays open for so long. A schema given in ``--storage`` is emptied first.
"""

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import insert, text

from autotune.model import (
    Answer,
    Budget,
    Form,
    Machine,
    Measurement,
    Outcome,
    Phase,
    PhaseMemory,
    Plan,
    ProbeResult,
    Reason,
    SearchRecord,
    SearchState,
    Source,
    WorkloadInfo,
)
from autotune.storage.address import parse_address
from autotune.storage.convert import probe_to_row, search_to_row
from autotune.storage.engine import for_writing, make_engine
from autotune.storage.owners import at_work, new_owner
from autotune.storage.store import Store
from autotune.storage.tables import ProbeRow, SearchRow

GIB = 1 << 30
PROBES_EACH = 10
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LINES = "a line that the training wrote to its output\n" * 20


def a_search(number: int) -> SearchRecord:
    """A finished one, of one of a hundred workloads."""
    ref = f"train_{number % 100}.py"
    machine = Machine(
        device="cuda",
        device_name="NVIDIA H200",
        device_uuid="GPU-1234",
        device_index=0,
        capacity_bytes=141 * GIB,
        driver_version="580.159",
        torch_version="2.13.0",
        cuda_version="13.0",
        python_version="3.12.3",
        platform="Linux",
    )
    workload = WorkloadInfo(
        ref=ref,
        fingerprint=f"{number % 100:064d}",
        recognised=(),
        parameters=124_439_808,
        trainable_parameters=124_439_808,
        parameters_bytes=GIB // 2,
        trainable_bytes=GIB // 2,
        optimizer="AdamW",
        batch="int64 [B, 1024]",
        data_set_size=None,
        evaluates=True,
    )
    return SearchRecord(
        id=f"{number:012x}",
        key=f"{number % 1000:064d}",
        state=SearchState.ANSWERED,
        created=BEGAN + timedelta(minutes=number),
        finished=BEGAN + timedelta(minutes=number, seconds=50),
        owner="elsewhere:17:1.00",
        version="0",
        plan=Plan(source=Source(ref=ref, directory="/home/me"), memory_limit_bytes=40 * GIB),
        workload=workload,
        machine=machine,
        budget=Budget(limit_bytes=40 * GIB, source="device", capacity_bytes=0, others_bytes=0, headroom_bytes=0),
        answer=Answer(max_batch=27, refuted_at=28, recommended_batch=24, limited_by="device_memory", step=1),
        message="28 runs out of memory",
    )


def a_probe(batch_size: int) -> ProbeResult:
    """One that fits, with as much output as is common."""
    phases = tuple(PhaseMemory(phase=p, peak_allocated_bytes=GIB, peak_reserved_bytes=2 * GIB) for p in Phase)
    return ProbeResult(
        batch_size=batch_size,
        form=Form.LONG,
        reason=Reason.GROW,
        outcome=Outcome.FITS,
        failure=None,
        measurement=Measurement(steps_executed=8, step_seconds=(0.1,) * 8, losses=(1.5,) * 8, phases=phases),
        budget_bytes=40 * GIB,
        launcher="fork",
        started_at=BEGAN,
        seconds=3.5,
        stdout_tail=LINES,
    )


def fill(url: str, probes: int) -> None:
    """Make the ledger, and finished searches in it."""
    Store.open(url).close()
    engine = make_engine(parse_address(url))
    # One row of a probe is made, and repeated: it is their number that counts here.
    columns = [column.key for column in ProbeRow.__table__.columns if column.key != "id"]
    probe = probe_to_row("", 0, a_probe(8))
    values = {name: getattr(probe, name) for name in columns}
    for first in range(0, probes // PROBES_EACH, 500):
        records = [a_search(number) for number in range(first, min(first + 500, probes // PROBES_EACH))]
        names = [column.key for column in SearchRow.__table__.columns]
        searches = [{name: getattr(row, name) for name in names} for row in map(search_to_row, records)]
        of_them = [
            {**values, "search_id": record.id, "number": number + 1}
            for record in records
            for number in range(PROBES_EACH)
        ]
        with for_writing(engine).begin() as connection:
            connection.execute(insert(SearchRow), searches)
            connection.execute(insert(ProbeRow), of_them)
    engine.dispose()


def empty(url: str) -> None:
    """Drop what is in the schema of a server."""
    address = parse_address(url)
    engine = make_engine(address)
    with engine.begin() as connection:
        connection.execute(text(f'DROP SCHEMA IF EXISTS "{address.schema}" CASCADE'))
    engine.dispose()


Took = tuple[float, float, float]
"""Milliseconds of a call: wall time, median and shortest; mean processor time of this process and its children."""


def timed(work: Callable[[], object], times: int) -> Took:
    """Do it so many times."""
    wall, processor = [], []
    for _ in range(times):
        began, used = time.perf_counter(), sum(os.times()[:4])
        work()
        wall.append((time.perf_counter() - began) * 1000)
        processor.append((sum(os.times()[:4]) - used) * 1000)
    # The clock of processor time is coarse: only its mean says something of what is short.
    return statistics.median(wall), min(wall), statistics.mean(processor)


def command(url: str, times: int) -> Took:
    """The whole ``autotune runs ls`` as it is typed, from the start of its process to its end."""
    script = Path(sys.executable).with_name("autotune")
    program = [str(script)] if script.exists() else [sys.executable, "-m", "autotune"]
    words = [*program, "runs", "ls", "--storage", url]
    return timed(lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL), times)


@contextmanager
def a_reader(url: str, seconds: float) -> Iterator[None]:
    """Somebody else's transaction, open for so long or as long as the block takes, whichever is longer."""
    engine = make_engine(parse_address(url))
    reading, done = threading.Event(), threading.Event()

    def read() -> None:
        with engine.begin() as connection:
            connection.execute(text("SELECT count(*) FROM autotune_probes"))
            reading.set()
            time.sleep(seconds)
            done.wait()

    thread = threading.Thread(target=read)
    thread.start()
    reading.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()
        engine.dispose()


def rows(url: str, reader_seconds: float) -> Iterator[tuple[str, Took]]:
    """(what, how long) of each thing that is timed."""
    with Store.open(url) as store:
        mine = replace(a_search(1 << 24), state=SearchState.RUNNING, answer=None, finished=None, owner=new_owner())
        at_work(mine.owner)
        store.begin(mine, lease_s=600)

        def one_probe() -> None:
            store.add_probe(mine.id, a_probe(8), owner=mine.owner, lease_s=600)

        yield "a probe: lease and record", timed(one_probe, 200)
        if reader_seconds:
            with a_reader(url, reader_seconds):
                yield f"the same, beside a reader of {reader_seconds:g} s", timed(one_probe, 200)
        yield "start: orphans", timed(store.close_orphans, 20)
        yield "start: latest search of a question", timed(lambda: store.latest(f"{7:064d}", set(SearchState)), 20)
        yield "start: latest of a workload", timed(lambda: store.latest_of("train_7.py", lambda record: True), 20)
        yield "runs ls, the reading", timed(lambda: store.summaries(50), 20)
        yield "runs show, the reading", timed(lambda: store.probes(f"{7:012x}"), 20)
    yield "runs ls, the whole command", command(url, 7)


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", default="", help="an address; default: a new file in a temporary folder")
    parser.add_argument("--probes", type=int, default=100_000)
    parser.add_argument("--reader-seconds", type=float, default=0.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = asked.storage or str(Path(folder) / "ledger.sqlite3")
        if parse_address(url).path is None:
            empty(url)
        fill(url, asked.probes)
        kind = parse_address(url).url.get_backend_name()
        print(f"`python benchmarks/{Path(__file__).name} {shlex.join(sys.argv[1:])}`".replace(url, "..."))
        print(
            f"{kind}, {asked.probes:,} probes in {asked.probes // PROBES_EACH:,} searches; {platform.machine()},"
            f" {os.cpu_count()} cores, Python {platform.python_version()}, SQLAlchemy {version('sqlalchemy')},"
            f" {datetime.now(UTC):%Y-%m-%d}; load {os.getloadavg()[0]:.1f}\n"
        )
        print("| what | median, ms | best, ms | processor, ms |\n|---|---|---|---|")
        for what, took in rows(url, asked.reader_seconds):
            print(f"| {what} | {' | '.join(f'{ms:.1f}' for ms in took)} |", flush=True)


if __name__ == "__main__":
    main()
