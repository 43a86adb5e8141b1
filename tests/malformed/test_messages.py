"""What comes from processes that run the user's code: frames, answers, marks, descriptions, recordings, the zygote's word."""

import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autotune.model import Form, Outcome, Question, Reason
from autotune.probe.answers import describe_result, known_batch, machine_result, probe_result
from autotune.probe.ended import Ended, read_ended
from autotune.probe.guardian import Guardian
from autotune.probe.tool import Tool
from autotune.probe.wire import Decoder
from autotune.storage.convert import probe_from_row, probe_to_row
from tests.cli.results import MACHINE
from tests.contract.samples import PROBE, SEARCH
from tests.malformed.inputs import TEXTS, VALUES, clear, damaged, inputs

TOKEN = "0123456789abcdef"
QUESTION = Question(batch_size=4, form=Form.SHORT, reason=Reason.GROW)


def jsonable(value: Any) -> Any:
    from dataclasses import asdict

    return json.loads(json.dumps(asdict(value)))


ANSWER: dict[str, Any] = {
    "kind": "answer",
    "measurement": jsonable(PROBE.measurement),
    "raised": [{"type": "builtins.RuntimeError", "bases": ["builtins.RuntimeError"], "text": "x", "errno": None}],
    "phase": "forward",
    "step": 1,
    "batch_size": 4,
    "traceback": "",
    "memory": {
        "allocated_bytes": 1,
        "reserved_bytes": 1,
        "free_bytes": 1,
        "cap_bytes": 1,
        "outside_at_cap_bytes": 1 << 30,
        "outside_bytes": 1,
    },
}
DESCRIBED: dict[str, Any] = {
    "workload": jsonable(SEARCH.workload),
    "machine": jsonable(MACHINE),
    "known": {"size": 2, "extents": [[2, 3]]},
}
REPORT: dict[str, Any] = {
    "zygote": True,
    "answer": None,
    "mark": {"kind": "mark", "phase": "forward", "step": 1, "batch_size": 4},
    "exit_code": 0,
    "signal": None,
    "timed_out": False,
    "garbage_bytes": 0,
    "host_oom_kills": 0,
    "seconds": 0.5,
}


def frame(body: bytes) -> bytes:
    return b"\n" + f"{TOKEN} {zlib.crc32(body):08x} ".encode() + body + b"\n"


def reported(answer: object, mark: object) -> Ended:
    """The guardian's report of it, as the tool reads it."""
    return read_ended(json.dumps({**REPORT, "answer": answer, "mark": mark}).encode())


NUMBER = st.one_of(st.integers(-2, 3), st.just(10**9), TEXTS.filter(lambda text: " " not in text and "\n" not in text))
FORGED = st.builds(
    lambda number, place, count, text: f"{number} {place} {count} {text}".encode(errors="replace").replace(b"\n", b""),
    NUMBER,
    NUMBER,
    NUMBER,
    st.one_of(TEXTS, VALUES.map(json.dumps), st.just("[" * 60_000), st.just('{"kind": "answer"}')),
)


@inputs(120)
@given(bodies=st.lists(st.one_of(FORGED, st.binary(max_size=60)), max_size=6), cut=st.integers(200, 5000))
def test_forged_frames_are_messages_of_a_kind_or_garbage(bodies: list[bytes], cut: int) -> None:
    decoder, stream = Decoder(TOKEN), b"".join(frame(body) for body in bodies) + frame(b'7 0 1 {"kind": "answer"}')
    messages = [m for start in range(0, len(stream), cut) for m in decoder.feed(stream[start : start + cut])]
    assert all(isinstance(message["kind"], str) for message in messages)
    assert messages[-1]["kind"] == "answer"  # the sound one came through


def test_parts_that_never_become_a_message_do_not_fill_memory() -> None:
    decoder = Decoder(TOKEN)
    for number in range(12_000):  # 44 MB of them
        list(decoder.feed(frame(f"{number} 0 2 {'x' * 3700}".encode())))
        if number % 1000 == 0:
            assert sum(len(part) for parts in decoder._parts.values() for part in parts.values()) <= 1 << 24


@inputs(150)
@given(answer=st.one_of(damaged(ANSWER), VALUES), mark=st.one_of(damaged(REPORT["mark"]), VALUES))
def test_any_answer_becomes_a_result_that_the_ledger_keeps(answer: Any, mark: Any, tmp_path: Path) -> None:
    ended = clear(reported, answer if isinstance(answer, dict) else None, mark if isinstance(mark, dict) else None)
    assert ended is not None
    result = clear(
        probe_result,
        QUESTION,
        ended,
        machine=MACHINE,
        budget_bytes=1 << 30,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        launcher="fork",
        stdout=tmp_path / "out",
        stderr=tmp_path / "err",
    )
    if result is not None:
        row = probe_to_row("s", 1, result)
        numbers = [getattr(row, column.name) for column in row.__table__.columns]
        assert all(abs(n) < 2**63 for n in numbers if isinstance(n, int))
        assert probe_from_row(row).outcome is result.outcome
        if result.outcome is Outcome.FITS:
            assert result.measurement.steps_executed >= 2, "a probe that did nothing fits nothing"


@inputs(100)
@given(described=damaged(DESCRIBED))
def test_any_description_is_understood_or_refused(described: Any) -> None:
    clear(describe_result, described)
    clear(machine_result, described)
    clear(known_batch, described)


@inputs(40)
@given(answer=st.dictionaries(TEXTS, VALUES, max_size=4))
def test_an_answer_of_another_form_is_none(answer: dict[str, Any]) -> None:
    assert reported({"kind": 7, **answer}, None).answer is None


@inputs(60)
@given(reply=st.one_of(VALUES, st.builds(lambda pid: {"pid": pid}, st.one_of(st.integers(-3, 400), VALUES))))
def test_a_process_that_is_not_below_the_guardian_is_never_taken_for_a_probe(reply: object) -> None:
    guardian = Guardian(Tool(process=0, report=-1))
    try:
        guardian._forked(reply)
    except ValueError:
        return
    raise AssertionError(f"{reply} was taken for a child of this process")
