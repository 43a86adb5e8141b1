"""Several ranks, one verdict: which failure decides, what is kept of each rank, how they are started. No processes."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import AutotuneError, EnvironmentTrouble, WorkloadError
from autotune.model import (
    Cause,
    Failure,
    Form,
    Measurement,
    Outcome,
    Phase,
    PhaseMemory,
    ProbeResult,
    RankResult,
    Settings,
    Source,
)
from autotune.probe.ended import Ended, read_ended
from autotune.probe.order import Op, Order, Rank, Request
from autotune.probe.ranks import orders, verdict
from tests.cli.results import failing, fitting
from tests.unit.classify_samples import raised

OOM = Failure(cause=Cause.DEVICE_MEMORY, message="CUDA out of memory", phase=Phase.BACKWARD, step=3)
CLOSED = Failure(cause=Cause.USER_CODE, message="[pair.cc:553] Connection closed by peer [127.0.0.1]:5015", step=3)
BUG = Failure(cause=Cause.USER_BUG, message="name 'lable' is not defined", phase=Phase.DATA, step=1)
KILLED = Failure(cause=Cause.SIGNAL, message="the probe was killed by SIGKILL", signal="SIGKILL", step=2)
LATE = Failure(cause=Cause.TIMEOUT, message="no answer within the time limit")
SMALL = Failure(cause=Cause.DATA_SET, message="asked for a batch of 8 and got 5", phase=Phase.DATA)


def ended(**fields: Any) -> Ended:
    """The guardian's report of one rank."""
    report: dict[str, Any] = {
        "zygote": True,
        "answer": None,
        "mark": None,
        "exit_code": 0,
        "signal": None,
        "timed_out": False,
        "garbage_bytes": 0,
        "host_oom_kills": 0,
        "seconds": 1.5,
        "ended_at": 100.0,
    }
    return read_ended(json.dumps({**report, **fields}).encode())


def failed_at(instant: float, ended_at: float = 100.0) -> Ended:
    """A rank that raised something."""
    answer = {
        "kind": "answer",
        "failed_at": instant,
        "raised": [asdict(raised("RuntimeError", "x"))],
        "phase": "backward",
    }
    return ended(answer=answer, ended_at=ended_at)


def measured() -> Ended:
    """A rank that ran to its end."""
    return ended(answer={"kind": "answer", "measurement": asdict(Measurement(steps_executed=3))})


def failure_of(failure: Failure, outcome: Outcome) -> ProbeResult:
    return replace(failing(8), outcome=outcome, failure=failure)


def judged(*ranks: tuple[Ended, ProbeResult | AutotuneError]) -> ProbeResult:
    """The verdict on ranks that ended so, and are judged so by themselves."""
    (first, _), *others = ranks
    whole = replace(first, peers=tuple(one for one, _ in others))
    results = iter([result for _, result in ranks])

    def result(*_: object) -> ProbeResult:
        found = next(results)
        if isinstance(found, AutotuneError):
            raise found
        return found

    return verdict(whole, [(Path("out"), Path("err"))] * len(ranks), result)


FITS = (measured(), fitting(8))


def test_the_first_failure_decides_whichever_rank_tells_first() -> None:
    oom, bug = failure_of(OOM, Outcome.OUT_OF_MEMORY), failure_of(BUG, Outcome.WORKLOAD_ERROR)
    first = judged((failed_at(7.0), bug), (failed_at(5.0), oom))
    assert first.outcome is Outcome.OUT_OF_MEMORY and first.failure is not None
    assert (first.failure.rank, first.failure.message) == (1, "rank 1 of 2, step 3: CUDA out of memory")
    assert judged((failed_at(4.0), bug), (failed_at(5.0), oom)).outcome is Outcome.WORKLOAD_ERROR
    equally = judged((failed_at(5.0), oom), (failed_at(5.0), oom))
    assert equally.failure is not None and equally.failure.rank == 0


def test_a_rank_that_lost_contact_decides_nothing_however_early_it_says_so() -> None:
    lost = failure_of(CLOSED, Outcome.WORKLOAD_ERROR)
    killed = failure_of(KILLED, Outcome.CRASHED)
    result = judged((failed_at(5.0), lost), (ended(signal=9, exit_code=None, ended_at=5.2), killed))
    assert result.outcome is Outcome.CRASHED and result.failure is not None and result.failure.rank == 1
    assert [one.outcome for one in result.ranks] == [None, Outcome.CRASHED]


def test_ranks_that_only_lost_contact_are_a_failure_all_the_same() -> None:
    lost = failure_of(CLOSED, Outcome.WORKLOAD_ERROR)
    result = judged((failed_at(5.0), lost), (failed_at(4.0), lost))
    assert result.failure is not None and result.failure.rank == 1
    assert [one.outcome for one in result.ranks] == [None, Outcome.WORKLOAD_ERROR]


def test_an_instant_that_cannot_be_is_that_at_which_the_guardian_knew() -> None:
    oom, bug = failure_of(OOM, Outcome.OUT_OF_MEMORY), failure_of(BUG, Outcome.WORKLOAD_ERROR)
    forged = (failed_at(float("nan"), ended_at=9.0), oom), (failed_at(1e300, ended_at=8.0), bug)
    assert judged(*forged).outcome is Outcome.WORKLOAD_ERROR


def test_a_rank_that_was_stopped_says_nothing() -> None:
    stopped = ended(stopped=True, signal=15, exit_code=None, mark={"phase": "backward", "step": 2})
    crashed = failure_of(KILLED, Outcome.CRASHED)
    result = judged((stopped, crashed), (failed_at(50.0), failure_of(OOM, Outcome.OUT_OF_MEMORY)))
    assert result.outcome is Outcome.OUT_OF_MEMORY
    first = result.ranks[0]
    assert (first.outcome, first.phase, first.step) == (None, Phase.BACKWARD, 2)


def test_the_rank_that_is_furthest_behind_is_the_one_that_did_not_arrive() -> None:
    late = failure_of(LATE, Outcome.TIMED_OUT)
    ahead = ended(timed_out=True, mark={"phase": "backward", "step": 2})
    behind = ended(timed_out=True, mark={"phase": "optimizer", "step": 1})
    result = judged((ahead, late), (behind, late))
    assert result.failure is not None and result.failure.rank == 1
    assert result.failure.message == (
        "no answer within the time limit: rank 1 was in phase optimizer of step 1, and was waited for:"
        " rank 0 was in phase backward of step 2"
    )
    both = judged((ahead, late), (ahead, late)).failure
    assert both is not None and both.rank is None
    assert both.message == (
        "no answer within the time limit, and all ranks had come as far: rank 0 was in phase backward of step 2"
    )


def test_a_failure_comes_before_ranks_that_hang_because_of_it() -> None:
    late = failure_of(LATE, Outcome.TIMED_OUT), ended(timed_out=True, mark={"phase": "backward", "step": 2})
    bug = failure_of(BUG, Outcome.WORKLOAD_ERROR)
    assert judged((late[1], late[0]), (failed_at(99.0), bug)).outcome is Outcome.WORKLOAD_ERROR


def test_a_size_is_safe_if_every_rank_says_so_and_takes_what_the_largest_takes() -> None:
    small = Measurement(
        steps_executed=8,
        step_seconds=(0.1, 0.4),
        phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=9),),
        non_pytorch_bytes=7,
        peak_device_bytes=10,
    )
    large = replace(
        small,
        step_seconds=(0.2, 0.3),
        phases=(PhaseMemory(phase=Phase.FORWARD, peak_allocated_bytes=5),),
        non_pytorch_bytes=3,
        peak_device_bytes=12,
    )
    fits = [replace(fitting(8), measurement=one) for one in (small, large)]
    result = judged((measured(), fits[0]), (measured(), fits[1]))
    assert result.fits
    both = result.measurement
    assert (both.peak_device_bytes, both.non_pytorch_bytes, both.step_seconds) == (12, 7, (0.2, 0.4))
    assert both.phases[0].peak_allocated_bytes == 9
    assert [(one.rank, one.outcome, one.peak_device_bytes) for one in result.ranks] == [
        (0, Outcome.FITS, 10),
        (1, Outcome.FITS, 12),
    ]
    limited = judged((measured(), fits[0]), (measured(), failure_of(SMALL, Outcome.SIZE_LIMIT)))
    assert limited.outcome is Outcome.SIZE_LIMIT and limited.failure is not None
    assert limited.failure.message == "rank 1 of 2: asked for a batch of 8 and got 5"


def test_a_refusal_names_its_rank() -> None:
    refused = WorkloadError("loss() returned None", hint="return it", detail="lines")
    with pytest.raises(WorkloadError, match=r"^rank 1 of 2: loss\(\) returned None$") as caught:
        judged(FITS, (ended(answer={"kind": "answer", "refused": {}, "failed_at": 3.0}), refused))
    assert (caught.value.hint, caught.value.detail) == ("return it", "lines")
    trouble = EnvironmentTrouble("no device")
    with pytest.raises(EnvironmentTrouble, match="rank 0 of 2: no device"):
        judged((ended(), trouble), FITS)


def test_an_order_for_each_rank_has_its_device_and_the_environment_of_torchrun(tmp_path: Path) -> None:
    source = Source(ref="train.py")
    first = Order(
        op=Op.PROBE,
        source=source,
        settings=Settings(),
        job_environment={"PYTORCH_ALLOC_CONF": "x"},
        seed=3,
        device="cuda:0",
        device_uuid="a",
        ranks=2,
        form=Form.LONG,
    )
    both = orders(first, tmp_path / "meeting", ("a", "b"))
    assert [(one.rank, one.device, one.device_uuid) for one in both] == [(0, "cuda:0", "a"), (1, "cuda:1", "b")]
    one, other = (order.job_environment for order in both)
    differing = {"RANK", "LOCAL_RANK"}
    assert {name for name in one if one[name] != other[name]} == differing
    assert (other["RANK"], other["LOCAL_RANK"], other["WORLD_SIZE"], other["LOCAL_WORLD_SIZE"]) == ("1", "1", "2", "2")
    assert other["MASTER_ADDR"] == "127.0.0.1" and 0 < int(other["MASTER_PORT"]) < 1 << 16
    assert other["PYTORCH_ALLOC_CONF"] == "x"
    on_cpu = orders(replace(first, device="cpu"), tmp_path / "meeting", ("", ""))
    assert [order.device for order in on_cpu] == ["cpu", "cpu"]
    both[1].write(tmp_path / "order.json")
    assert Order.read(str(tmp_path / "order.json")) == both[1]


def test_a_request_of_several_ranks_comes_over_the_pipe_whole() -> None:
    request = Request(
        load=False,
        fork=True,
        order="0.json",
        environment={},
        stdout="0.out",
        stderr="0.err",
        deadline_s=3.0,
        peers=(Rank(order="1.json", stdout="1.out", stderr="1.err", variables={"RANK": "1"}),),
        variables={"RANK": "0"},
    )
    assert Request.decode(request.encode()) == request
    assert [rank.variables["RANK"] for rank in request.ranks] == ["0", "1"]


def test_a_rank_result_of_one_that_was_stopped_says_so_by_having_no_outcome() -> None:
    assert RankResult(rank=0, outcome=None).peak_device_bytes is None
