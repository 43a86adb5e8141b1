"""What a history says about settings: what ran, what trains the same, and which values are to blame."""

from dataclasses import replace

from autotune.model import Compile, Form, MemoryFormat, Outcome, Precision, ProbeResult, Reason, Settings
from autotune.search.apart import plain
from autotune.search.settings.rows import Row
from autotune.search.settings.table import Guard, Table
from tests.fakes import KILLED, OUT_OF_MEMORY, REJECTED, Fault, result
from tests.unit.planted_settings import CHANGES_TRAINING, UNSUPPORTED

BASE = Settings()
BF16 = Settings(precision=Precision.BF16)
FP16 = Settings(precision=Precision.FP16)
LAST = Settings(memory_format=MemoryFormat.CHANNELS_LAST)
BOTH = Settings(precision=Precision.BF16, memory_format=MemoryFormat.CHANNELS_LAST)
COMPILED = Settings(precision=Precision.BF16, compile=Compile.DEFAULT)


def timed(settings: Settings, fault: Fault | None = None, size: int = 8, seconds: float = 1.0) -> ProbeResult:
    return result(size, Form.TIMED, fault, reason=Reason.KNOWN, step_seconds=seconds, settings=settings)


def compared(settings: Settings, fault: Fault | None = None, size: int = 8) -> ProbeResult:
    return result(size, Form.COMPARE, fault, reason=Reason.COMPARE, settings=settings)


def table(*history: ProbeResult) -> Table:
    return Table((timed(BASE), *history), BASE, frozenset({8}))


def test_rows_are_by_settings_whatever_the_accumulation() -> None:
    found = table(timed(replace(BF16, accumulate=2), seconds=4.0), timed(BF16, size=16))
    assert list(found.rows) == [BASE, BF16]
    assert found.row(BF16).speeds == {8: 4.0, 16: 16.0}
    assert plain(replace(BF16, accumulate=7)) == BF16
    assert found.row(FP16) == Row(FP16)


def test_the_most_precise_form_tells_the_speed() -> None:
    probes = (
        result(8, Form.SHORT, step_seconds=1.0),
        result(8, Form.LONG, step_seconds=2.0),
        result(8, Form.TIMED, step_seconds=4.0),
    )
    assert [Row(BASE, probes[: n + 1]).speeds[8] for n in range(3)] == [8.0, 4.0, 2.0]


def test_a_size_that_fails_in_the_long_form_is_no_longer_one_that_fits() -> None:
    row = Row(BASE, (timed(BASE), result(8, Form.LONG, OUT_OF_MEMORY)))
    assert (row.speeds, row.shaky, row.timed) == ({}, {8: 8.0}, {8: 8.0})
    assert row.too_large == [8]


def test_a_vanished_process_gets_another_chance_in_the_same_form() -> None:
    row = Row(BASE, (timed(BASE, KILLED),))
    assert row.open is not None and row.open.form is Form.TIMED
    assert Row(BASE, (timed(BASE, KILLED), timed(BASE, KILLED))).open is None


def test_settings_that_fail_where_others_run_are_at_fault_and_sizes_that_others_fail_at_are_not() -> None:
    assert table(timed(BF16, UNSUPPORTED)).faulty(table(timed(BF16, UNSUPPORTED)).row(BF16))
    assert not table(timed(BF16, OUT_OF_MEMORY)).faulty(table(timed(BF16, OUT_OF_MEMORY)).row(BF16))
    elsewhere = table(timed(BF16), timed(BF16, REJECTED, size=9))
    assert not elsewhere.faulty(elsewhere.row(BF16))


def test_a_comparison_accepts_or_rejects_and_until_then_nothing_is_known() -> None:
    assert table().guard(BASE) is Guard.ACCEPTED
    assert table().guard(BF16) is Guard.UNKNOWN
    assert table(compared(BF16)).guard(replace(BF16, accumulate=3)) is Guard.ACCEPTED
    assert table(compared(BF16, CHANGES_TRAINING)).guard(BF16) is Guard.REJECTED
    too_large = table(compared(BF16, OUT_OF_MEMORY, size=4))
    assert (too_large.guard(BF16), too_large.comparisons(BF16).too_large) == (Guard.UNKNOWN, 4)


def test_a_comparison_that_proves_nothing_is_repeated_twice() -> None:
    outcomes = [table(*(compared(BF16, KILLED),) * n).guard(BF16) for n in range(5)]
    assert outcomes == [Guard.UNKNOWN] * 3 + [Guard.REJECTED] * 2


def test_what_does_not_touch_training_needs_no_comparison_of_its_own() -> None:
    allocator = Settings(allocator="expandable_segments:True", pin_memory=True)
    assert table().guard(allocator) is Guard.ACCEPTED
    assert table(compared(BF16)).guard(replace(allocator, precision=Precision.BF16)) is Guard.ACCEPTED
    assert table().guard(Settings(set_to_none=False)) is Guard.UNKNOWN


def test_the_only_difference_to_what_trains_the_same_is_to_blame() -> None:
    found = table(timed(BF16), compared(BF16), timed(BOTH), compared(BOTH, CHANGES_TRAINING))
    assert found.blamed == {("memory_format", MemoryFormat.CHANNELS_LAST)}
    assert found.blames(LAST) and not found.blames(BF16)
    assert [row.settings for row in found.alive] == [BASE, BF16]


def test_of_two_differences_none_is_to_blame() -> None:
    assert table(timed(BOTH), compared(BOTH, CHANGES_TRAINING)).blamed == frozenset()


def test_nothing_is_blamed_by_settings_that_were_not_compared_themselves() -> None:
    found = table(timed(BF16), timed(BOTH), compared(BOTH, CHANGES_TRAINING))
    assert found.blamed == frozenset()


def test_settings_that_fail_need_no_comparison_to_tell_which_value_it_is() -> None:
    assert table(timed(BF16, UNSUPPORTED)).blamed == {("precision", Precision.BF16)}


def test_what_breaks_the_compilers_plain_mode_breaks_its_others() -> None:
    found = table(timed(BF16), timed(COMPILED, UNSUPPORTED))
    assert found.blames(Settings(compile=Compile.REDUCE_OVERHEAD)) and not found.blames(BF16)


def test_the_users_own_values_are_never_to_blame() -> None:
    own = Table((timed(BF16), timed(BASE, UNSUPPORTED)), BF16, frozenset({8}))
    assert own.faulty(own.row(BASE))
    assert own.blamed == {("precision", Precision.DEFAULT)}
    back = Table((timed(BASE), timed(BF16, Fault(outcome=Outcome.UNSTABLE, cause=UNSUPPORTED.cause))), BF16)
    assert back.blamed == frozenset(), "the user's own settings are not a candidate that can be at fault"
