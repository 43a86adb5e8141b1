"""A trace as bytes: nothing is lost, little is taken, and what is no trace is refused whatever it looks like."""

import json
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.memory import encoding
from autotune.memory.encoding import MAX_BYTES, decode, encode
from autotune.model import Mark, PassPeaks, Phase, Trace
from tests.recordings import Recording, load

EMPTY = Trace((), (), (), (), ())

TRACE = Trace(
    sizes=(512, 1 << 49, 0, 2048),
    streams=(0, 1, 0, 2),
    events=(1, 2, -1, 3, -3, 4),
    marks=(Mark(0, Phase.BUILD, 0, 0), Mark(1, Phase.FORWARD, 1, 2), Mark(1, Phase.BACKWARD, 1, 2)),
    passes=(PassPeaks(2, 3, 1 << 49, 1 << 49), PassPeaks(3, 3, 4096, 8192)),
)

DOCUMENT: dict[str, Any] = {
    "format": 1,
    "sizes": [512, 1 << 49, 0, 2048],
    "streams": [0, 1, 0, 2],
    "events": [0, 0, 2, 0, 1, 0],
    "marks": [[0, 0, 0, "build"], [1, 1, 2, "forward"], [1, 1, 2, "backward"]],
    "passes": [[2, 3, 1 << 49, 1 << 49], [3, 3, 4096, 8192]],
}
"""What ``TRACE`` is in JSON."""

RECORDINGS = [recording for recording in load() if recording.batch_size == 16]


def packed(**changes: object) -> bytes:
    """``DOCUMENT`` with other fields, as bytes."""
    return zlib.compress(json.dumps(DOCUMENT | changes).encode())


def one_after_the_other(traces: Sequence[Trace]) -> Trace:
    """One process that does what several did, without their marks."""
    sizes: tuple[int, ...] = ()
    events: tuple[int, ...] = ()
    for trace in traces:
        made = len(sizes)
        events += tuple(event + made if event > 0 else event - made for event in trace.events)
        sizes += trace.sizes
    return Trace(sizes, (), events, (), ())


def test_the_bytes_are_the_documented_json() -> None:
    assert json.loads(zlib.decompress(encode(TRACE))) == DOCUMENT


@pytest.mark.parametrize("trace", [TRACE, EMPTY], ids=["full", "empty"])
def test_a_trace_comes_back_as_it_was(trace: Trace) -> None:
    assert asdict(decode(encode(trace))) == asdict(trace)


def test_phases_come_back_as_phases() -> None:
    assert [type(mark.phase) for mark in decode(encode(TRACE)).marks] == [Phase] * 3


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)
def test_a_recorded_trace_comes_back_as_it_was_and_is_small(recording: Recording) -> None:
    data = encode(recording.trace)
    assert len(data) < len(recording.trace.events)  # less than a byte an event
    assert asdict(decode(data)) == asdict(recording.trace)


def test_four_passes_of_twelve_thousand_events_stay_far_below_150_kilobytes() -> None:
    trace = one_after_the_other([r.trace for r in load() if r.workload == "bert"])
    assert len(trace.events) > 48_000
    assert len(encode(trace)) < 30_000


@given(st.data())
def test_any_order_of_allocations_and_ends_comes_back(data: st.DataObject) -> None:
    events: list[int] = []
    alive: list[int] = []
    made = 0
    for ends in data.draw(st.lists(st.booleans(), max_size=40)):
        if ends and alive:
            events.append(-alive.pop(data.draw(st.integers(0, len(alive) - 1))))
        else:
            made += 1
            alive.append(made)
            events.append(made)
    trace = Trace(tuple(range(made)), (), tuple(events), (), ())
    assert decode(encode(trace)).events == trace.events


@pytest.mark.parametrize("length", range(len(encode(TRACE))))
def test_a_part_of_the_bytes_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"cut off after {length} bytes"):
        decode(encode(TRACE)[:length])


@pytest.mark.parametrize("place", range(len(encode(TRACE))))
def test_a_wrong_byte_is_noticed(place: int) -> None:
    data = bytearray(encode(TRACE))
    data[place] ^= 0xFF
    with pytest.raises(ValueError, match=r"not zlib data|cut off"):
        decode(bytes(data))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{}", "not zlib data"),
        (encode(TRACE) + b"\n", "1 bytes follow the end"),
        (zlib.compress(b""), "not JSON"),
        (zlib.compress(b"\xff"), "not JSON"),
        (zlib.compress(b"[" * 100_000), "not JSON"),
        (zlib.compress(b'{"format": ' + b"1" * 5000 + b"}"), "not JSON"),
        (zlib.compress(b"[]"), "format None, and this autotune reads format 1"),
        (zlib.compress(b"{}"), "format None"),
        (packed(format=2), "format 2, and"),
        (packed(format="1"), "format '1', and"),
    ],
)
def test_what_is_no_such_document_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(data)


@pytest.mark.parametrize("name", ["sizes", "streams", "events", "marks", "passes"])
@pytest.mark.parametrize("value", [None, 7, "text", {"0": 512}])
def test_a_field_that_is_no_list_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} is not a list"):
        decode(packed(**{name: value}))


@pytest.mark.parametrize("value", [-1, 1 << 50, 10**400, 0.5, 1e300, float("nan"), "7", True, None, [7], "x" * 1000])
def test_a_number_that_is_none_is_refused_with_its_place(value: object) -> None:
    for name, field, place in (
        ("sizes", [512, value, 0, 2048], r"sizes\[1\]"),
        ("streams", [0, 1, value, 2], r"streams\[2\]"),
        ("events", [value, 0, 2, 0, 1, 0], r"events\[0\]"),
        ("marks", [[value, 0, 0, "build"]], r"marks\[0\]\[0\]"),
        ("marks", [[0, 0, 0, "build"], [0, value, 0, "data"]], r"marks\[1\]\[1\]"),
        ("marks", [[0, 0, value, "build"]], r"marks\[0\]\[2\]"),
        ("passes", [[2, 3, 4096, value]], r"passes\[0\]\[3\]"),
    ):
        with pytest.raises(ValueError, match=place + " is .*, not a whole number from 0") as caught:
            decode(packed(**{name: field}))
        assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"events": [0, 0, 3, 0, 1, 0]}, r"events\[2\] ends number 3 from the latest of 2 allocations"),
        ({"events": [0, 0, 2, 0, 3, 0]}, r"events\[4\] is -1, and no such allocation is there to end"),
        ({"events": [0, 0, 2, 0, 1]}, "4 sizes of 3 allocations"),
        ({"events": [0, 0, 2, 0, 1, 0, 0]}, r"events\[6\] is allocation 5, the next of 4 is 5"),
        ({"streams": [0, 1, 0]}, "3 streams of 4 allocations"),
        ({"streams": [1, 0, 0, 2]}, r"streams\[0\] is 1, and only 0 appeared before it"),
        ({"streams": [0, 1, 0, 3]}, r"streams\[3\] is 3, and only 2 appeared before it"),
        ({"marks": [[7, 0, 0, "build"]]}, r"marks\[0\] is at 7, not from 0 to 6"),
        ({"marks": [[2, 0, 0, "build"], [1, 1, 2, "data"]]}, r"marks\[1\] is at 1, not from 2 to 6"),
        ({"marks": [[0, 0, 0, "lunch"]]}, r"marks\[0\] has the phase 'lunch'"),
        ({"marks": [[0, 0, 0, ["build"]]]}, r"marks\[0\] has the phase \['build'\]"),
        ({"marks": [[0, 0, "build"]]}, r"marks\[0\] is not a list of 4"),
        ({"marks": ["many"]}, r"marks\[0\] is not a list of 4"),
        ({"passes": [[2, 3, 4096, 8192, 0]]}, r"passes\[0\] is not a list of 4"),
        ({"passes": [[2, 3, 0, 0]] * 1001}, "1001 passes, more than 1000"),
    ],
)
def test_what_breaks_a_rule_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode(packed(**changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sizes": (512, -1, 0, 2048)}, r"sizes\[1\] is -1"),
        ({"sizes": (512, 1.0, 0, 2048)}, r"sizes\[1\] is 1.0"),
        ({"sizes": (512,)}, r"events\[1\] is allocation 2, the next of 1 is 2"),
        ({"events": (2, 1, -1, 3, -3, 4)}, r"events\[0\] is allocation 2"),
        ({"events": (1, 2, -1, 3, -1, 4)}, r"events\[4\] is -1"),
        ({"events": (1, -2, 2, 3, -3, 4)}, r"events\[1\] is -2"),
        ({"events": (1, 2, 0, 3, -3, 4)}, r"events\[2\] is 0"),
        ({"events": (1, 2, -1, 3, -3)}, "4 sizes of 3 allocations"),
        ({"streams": (0,)}, "1 streams of 4 allocations"),
        ({"streams": (0, 0, 2, 1)}, r"streams\[2\] is 2"),
        ({"marks": (Mark(-1, Phase.BUILD, 0, 0),)}, r"marks\[0\] is at -1"),
        ({"marks": (Mark(0, Phase.BUILD, 0, -2),)}, r"marks\[0\]\[2\] is -2"),
        ({"passes": (PassPeaks(2, 3, -1, 0),)}, r"passes\[0\]\[2\] is -1"),
        ({"marks": (Mark(0, Phase.BUILD, 0, 0),) * 100_001}, "100001 marks, more than 100000"),
        ({"passes": (PassPeaks(2, 3, 0, 0),) * 1001}, "1001 passes, more than 1000"),
    ],
)
def test_what_could_not_be_read_is_not_written(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode(replace(TRACE, **changes))


def test_there_is_a_limit_of_events_for_writer_and_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(TRACE)
    monkeypatch.setattr(encoding, "MAX_EVENTS", 5)
    for refuse in (lambda: encode(TRACE), lambda: decode(data)):
        with pytest.raises(ValueError, match="6 events, more than 5"):
            refuse()


def test_there_is_a_limit_of_bytes_for_writer_and_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    length = len(zlib.decompress(encode(TRACE)))
    monkeypatch.setattr(encoding, "MAX_BYTES", length)
    data = encode(TRACE)
    assert asdict(decode(data)) == asdict(TRACE)
    monkeypatch.setattr(encoding, "MAX_BYTES", length - 1)
    with pytest.raises(ValueError, match=f"{length} bytes of JSON, more than {length - 1}"):
        encode(TRACE)
    with pytest.raises(ValueError, match=f"unpacks to more than {length - 1} bytes"):
        decode(data)


def test_bytes_that_unpack_to_a_thousand_times_as_many_are_not_unpacked() -> None:
    bomb = zlib.compress(b" " * (4 * MAX_BYTES))
    assert len(bomb) < MAX_BYTES / 200
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=f"unpacks to more than {MAX_BYTES} bytes"):
            decode(bomb)
        assert tracemalloc.get_traced_memory()[1] < 3 * MAX_BYTES
    finally:
        tracemalloc.stop()


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 7) | st.floats() | st.sampled_from(list(Phase)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # the first draw waits for whatever the machine does
@given(st.fixed_dictionaries({}, optional={name: ANYTHING | st.just(value) for name, value in DOCUMENT.items()}))
def test_any_document_is_a_trace_or_a_value_error(document: dict[str, Any]) -> None:
    data = zlib.compress(json.dumps(document).encode())
    try:
        trace = decode(data)
    except ValueError:
        return
    assert asdict(decode(encode(trace))) == asdict(trace)


def test_a_probe_process_loads_nothing_else_with_it() -> None:
    code = (
        "import sys, autotune.memory.encoding; print({'torch', 'pydantic', 'sqlalchemy', 'pickle'} & set(sys.modules))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
