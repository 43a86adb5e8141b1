"""What a zygote does while a probe works, where it matters: on a CUDA device."""

from collections import Counter
from pathlib import Path

import pytest

from autotune import api
from autotune.model import Form, Question, Reason, SearchResult
from autotune.probe.launcher import Launcher
from tests.process.support import ASSETS

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("kind", ["", "seed", "meta"])
def test_a_model_made_ahead_is_only_moved_to_the_device_and_trains_as_one_the_probe_makes(
    found: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("PLANTED_FOLDER", str(tmp_path))
    plan = api.plan(str(ASSETS / "starting.py"), script_args=[kind] if kind else [], device="cuda")
    outside = max(p.measurement.non_pytorch_bytes or 0 for p in found.probes)
    question = Question(batch_size=3, form=Form.SHORT, reason=Reason.START)
    seen = []
    for ahead in (False, True):
        monkeypatch.setattr(Launcher, "_ahead", ahead)
        with Launcher(plan.source, timeout_s=120, seed=5) as launcher:
            launcher.describe("cuda", 1)
            seen += [launcher.probe(question, found.budget, outside) for _ in range(2)]
    assert all(probe.fits for probe in seen) and {probe.launcher for probe in seen} == {"fork"}
    assert len({probe.measurement.losses for probe in seen}) == 1
    told = Counter((tmp_path / "told").read_text().splitlines())
    assert (told["child makes"], told["copy makes"]) == (3 + 1, 1)  # without: to describe, and for two probes


def test_a_make_model_that_asks_the_device_is_kept_from_starting_it_in_the_zygote(
    found: SearchResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_FOLDER", str(tmp_path))
    plan = api.plan(str(ASSETS / "starting.py"), script_args=["ahead:cuda"], device="cuda")
    outside = max(p.measurement.non_pytorch_bytes or 0 for p in found.probes)
    with Launcher(plan.source, timeout_s=120, seed=5) as launcher:
        launcher.describe("cuda", 1)
        question = Question(batch_size=3, form=Form.SHORT, reason=Reason.START)
        probes = [launcher.probe(question, found.budget, outside) for _ in range(3)]
    assert [(probe.fits, probe.launcher) for probe in probes] == [(True, "fork")] * 3
    told = Counter((tmp_path / "told").read_text().splitlines())
    assert (told["child makes"], told["copy makes"], told["went another way"]) == (4, 1, 1)
