"""A trace as bytes and back, for the file a probe leaves and for the ledger: small, and checked when it is read.

Either may be damaged or written by somebody else, so reading checks every rule of ``Trace``; there is no pickle and no
evaluation. Used within the probe process as well: nothing but the standard library and ``autotune.model``.

The bytes are zlib-compressed JSON: ``format``, the lists ``sizes``, ``streams`` and ``events``, and as lists of lists
``marks`` (position, step, batch size, phase) and ``passes`` (batch size, steps, allocated bytes, reserved bytes). An
event is 0 for the next allocation and ``k`` for the end of the ``k``-th latest: what repeats in training repeats there.
"""

import base64
import json
import zlib
from collections.abc import Sequence

from autotune.model import Mark, PassPeaks, Phase, Trace

FORMAT = 1
"""Of the JSON. 1: as described above."""

MAX_BYTES = 16 << 20
"""Neither the JSON nor its compressed form is longer: nobody needs to read more than this into memory."""

MAX_EVENTS = 1_000_000
"""Recorded on an H200: a training step of GPT-2 (12 blocks) has 2,800, one of ConvNeXt small 4,900. This is twenty
steps of a model ten times as deep."""

_LISTS = ("sizes", "streams", "events", "marks", "passes")
_MAX_MARKS = 100_000
_MAX_PASSES = 1_000
_END = 1 << 50
"""All numbers are below: no device has a petabyte."""


def encode(trace: Trace) -> bytes:
    """Write a trace as bytes.

    Raises:
        ValueError: it breaks a rule of ``Trace`` or is too long, so that ``decode`` would refuse it.
    """
    _check(trace)
    document = {
        "format": FORMAT,
        "sizes": trace.sizes,
        "streams": trace.streams,
        "events": _relative(trace.events),
        "marks": [(mark.position, mark.step, mark.batch_size, mark.phase.value) for mark in trace.marks],
        "passes": [(one.batch_size, one.steps, one.allocated_bytes, one.reserved_bytes) for one in trace.passes],
    }
    text = json.dumps(document, separators=(",", ":")).encode()
    if len(text) > MAX_BYTES:
        raise ValueError(f"{len(text)} bytes of JSON, more than {MAX_BYTES}")
    return zlib.compress(text)


def decode(data: bytes) -> Trace:
    """Read what ``encode`` wrote.

    Raises:
        ValueError: it is something else, or of another format; says what is wrong, and where.
    """
    document = _document(_unpacked(data))
    trace = Trace(
        sizes=_numbers("sizes", document["sizes"]),
        streams=_numbers("streams", document["streams"]),
        events=_absolute(_numbers("events", document["events"])),
        marks=tuple(_mark(f"marks[{place}]", item) for place, item in enumerate(document["marks"])),
        passes=tuple(_peaks(f"passes[{place}]", item) for place, item in enumerate(document["passes"])),
    )
    _check(trace)
    return trace


def to_text(trace: Trace) -> str:
    """Write a trace as text: the bytes in base64.

    Raises:
        ValueError: as ``encode`` raises it.
    """
    return base64.b64encode(encode(trace)).decode("ascii")


def from_text(text: object) -> Trace:
    """Read what ``to_text`` wrote.

    Raises:
        ValueError: it is something else; says what is wrong.
    """
    return decode(base64.b64decode(str(text), validate=True))


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    try:
        # Never all at once: a thousand times the length of the data may come out.
        text = unpacker.decompress(data, MAX_BYTES + 1)
    except zlib.error as error:
        raise ValueError(f"not zlib data: {error}") from error
    if len(text) > MAX_BYTES:
        raise ValueError(f"unpacks to more than {MAX_BYTES} bytes")
    if not unpacker.eof:
        raise ValueError(f"cut off after {len(data)} bytes")
    if unpacker.unused_data:
        raise ValueError(f"{len(unpacker.unused_data)} bytes follow the end")
    return text


def _document(text: bytes) -> dict[str, list[object]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    found = document.get("format") if isinstance(document, dict) else None
    if found != FORMAT:
        raise ValueError(f"format {found!r:.40}, and this autotune reads format {FORMAT}")
    return {name: _list(name, document.get(name)) for name in _LISTS}


def _list(what: str, value: object, length: int | None = None) -> list[object]:
    if not (isinstance(value, list) and length in (None, len(value))):
        raise ValueError(f"{what} is not a list" + ("" if length is None else f" of {length}"))
    return value


def _numbers(what: str, values: Sequence[object]) -> tuple[int, ...]:
    """Take them for whole numbers from 0 to 2**50 - 1."""
    numbers = []
    for place, value in enumerate(values):
        if type(value) is not int or not 0 <= value < _END:  # not isinstance: JSON's true is no number
            raise ValueError(f"{what}[{place}] is {value!r:.40}, not a whole number from 0 to 2**50 - 1")
        numbers.append(value)
    return tuple(numbers)


def _mark(what: str, item: object) -> Mark:
    *numbers, phase = _list(what, item, length=4)
    if not isinstance(phase, str) or phase not in list(Phase):
        raise ValueError(f"{what} has the phase {phase!r:.40}, which is none")
    position, step, batch_size = _numbers(what, numbers)
    return Mark(position, Phase(phase), step, batch_size)


def _peaks(what: str, item: object) -> PassPeaks:
    return PassPeaks(*_numbers(what, _list(what, item, length=4)))


def _relative(events: Sequence[int]) -> list[int]:
    coded, made = [], 0
    for event in events:
        if event > 0:
            made += 1
        coded.append(0 if event > 0 else made + event + 1)
    return coded


def _absolute(coded: Sequence[int]) -> tuple[int, ...]:
    events, made = [], 0
    for place, number in enumerate(coded):
        if number > made:
            raise ValueError(f"events[{place}] ends number {number} from the latest of {made} allocations")
        if number == 0:
            made += 1
        events.append(made if number == 0 else number - made - 1)
    return tuple(events)


def _check(trace: Trace) -> None:
    counts = (
        ("events", len(trace.events), MAX_EVENTS),
        ("marks", len(trace.marks), _MAX_MARKS),
        ("passes", len(trace.passes), _MAX_PASSES),
    )
    for what, count, most in counts:
        if count > most:
            raise ValueError(f"{count} {what}, more than {most}")
    _numbers("sizes", trace.sizes)
    _check_events(trace.events, len(trace.sizes))
    if trace.streams:
        _check_streams(trace.streams, len(trace.sizes))
    position = 0
    for place, mark in enumerate(trace.marks):
        if not position <= mark.position <= len(trace.events):
            raise ValueError(f"marks[{place}] is at {mark.position}, not from {position} to {len(trace.events)}")
        position = mark.position
        _numbers(f"marks[{place}]", (mark.position, mark.step, mark.batch_size))
    for place, one in enumerate(trace.passes):
        _numbers(f"passes[{place}]", (one.batch_size, one.steps, one.allocated_bytes, one.reserved_bytes))


def _check_events(events: Sequence[int], num_sizes: int) -> None:
    made, ended = 0, bytearray(num_sizes + 1)
    for place, event in enumerate(events):
        if event > 0:
            made += 1
            if event != made or made > num_sizes:
                raise ValueError(f"events[{place}] is allocation {event}, the next of {num_sizes} is {made}")
        elif not 0 < -event <= made or ended[-event]:
            raise ValueError(f"events[{place}] is {event}, and no such allocation is there to end")
        else:
            ended[-event] = 1
    if made != num_sizes:
        raise ValueError(f"{num_sizes} sizes of {made} allocations")


def _check_streams(streams: Sequence[int], num_sizes: int) -> None:
    if len(streams) != num_sizes:
        raise ValueError(f"{len(streams)} streams of {num_sizes} allocations")
    known = 0
    for place, stream in enumerate(_numbers("streams", streams)):
        if stream > known:
            raise ValueError(f"streams[{place}] is {stream}, and only {known} appeared before it")
        known += stream == known
