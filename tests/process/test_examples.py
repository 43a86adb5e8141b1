"""Every example does what it says, on the CPU, with real out-of-memory events."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from autotune import api
from autotune.model import Cause, Form, OptimizerKind, Outcome, Parallel, Question, Reason, SearchResult, Settings
from autotune.probe import linux
from autotune.probe.devices import look_at_device
from autotune.probe.launcher import Launcher
from autotune.report.document import document, to_text
from autotune.units import parse_bytes
from tests.cli.results import MACHINE, with_settings

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LIMIT = "384MiB"
"""A quarter of it is left to the training, as nearly 300 MiB are torch's own: a third of the time of the 512 MiB of the
documentation."""


AS_TYPED = """
import os, pathlib, runpy
runpy.run_path({example!r}, run_name="__main__")
names = [one.joinpath("comm").read_text() for one in pathlib.Path("/proc/self/task").iterdir()]
pathlib.Path("threads_of_" + os.environ["RANK"]).write_text(repr([name.strip() for name in names if "gloo" in name]))
"""
"""Runs an example as it is, and each rank writes which threads of gloo there are when it is through.

Into a file of its own: what two ranks print at once is mixed, since torchrun starts them unbuffered.
"""


def search(name: str, storage: str, **options: object) -> SearchResult:
    plan = api.plan(str(EXAMPLES / name), device="cpu", **options)  # type: ignore[arg-type]
    return api.search(plan, storage=storage)


def train_alone(name: str, batch_size: int, limit: str) -> subprocess.CompletedProcess[str]:
    """The example's own training in a fresh process under the same limit on its data segment."""
    code = (
        "import resource, runpy, sys, torch\n"
        f"resource.setrlimit(resource.RLIMIT_DATA, ({parse_bytes(limit)}, resource.RLIM_INFINITY))\n"
        f"sys.argv = [{name!r}, '{batch_size}']\n"
        f"runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=False)


def test_tiny_gpt_is_limited_by_real_memory_as_an_exhaustive_sweep_shows_and_trains_alone_at_the_answer(
    storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every multiple of 8 in the long form. 16 samples take some 350 MiB with what is mapped and never touched, 24 some 385."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # a second thread maps a stack and an arena of its own
    limit = "366MiB"
    result = search("tiny_gpt.py", storage, memory_limit=limit, recommend=False, multiple_of=8)
    answer = result.answer.max_batch
    assert result.refutation is not None and result.refutation.failure is not None
    assert result.refutation.outcome is Outcome.OUT_OF_MEMORY
    assert "DefaultCPUAllocator" in result.refutation.failure.message
    assert result.answer.refuted_at == answer + 8
    alone = train_alone("tiny_gpt.py", answer, limit)
    assert alone.returncode == 0, alone.stderr
    assert "loss after 50 steps" in alone.stdout
    plan = result.plan
    fits = []
    monkeypatch.setattr(linux, "IS_LINUX", False)  # long probes are spawned anyway: no zygote to fork from
    with Launcher(plan.source, timeout_s=60, seed=plan.seed) as launcher:
        launcher.machine = result.machine
        for size in range(8, answer + 17, 8):
            question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=plan.settings)
            if launcher.probe(question, result.budget, 0).fits:
                fits.append(size)
    assert answer >= 16, "enough sizes to sweep"
    assert fits == list(range(8, answer + 1, 8)), "the largest that fits, and no holes below it"


def test_convnet_is_searched_with_its_evaluation(storage: str) -> None:
    result = search("convnet.py", storage, memory_limit=LIMIT, recommend=False, multiple_of=8)
    assert result.certificate.measurement.evaluated
    assert result.answer.max_batch % 8 == 0
    assert result.answer.limited_by in (Cause.HOST_MEMORY, Cause.DEVICE_MEMORY)


def test_long_tail_text_survives_a_shuffled_epoch_with_the_long_sample(storage: str) -> None:
    result = search("long_tail_text.py", storage, memory_limit=LIMIT, recommend=False)
    assert result.workload.data_set_size == 200
    assert result.answer.max_batch < 200
    alone = train_alone("long_tail_text.py", result.answer.max_batch, LIMIT)
    assert alone.returncode == 0, alone.stderr


def test_in_python_finds_a_batch_and_trains_in_the_same_process(storage: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "in_python.py")],
        env={**os.environ, "AUTOTUNE_STORAGE": storage},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "largest safe batch:" in done.stdout and "one step at that size: done" in done.stdout


def train_with_config(folder: Path, steps: int = 3) -> list[str]:
    """What the example prints when it is run in this folder, a line each; fails on any warning."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / "train_with_config.py"), "--steps", str(steps)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_train_with_config_runs_without_a_file(tmp_path: Path) -> None:
    tuned, rate, loss = train_with_config(tmp_path)
    assert tuned == f"Tuned(no autotune.json, {'cuda' if torch.cuda.is_available() else 'cpu'})"
    assert re.fullmatch(r"[\d,.]+ samples/s over 3 steps of 16 x 1 samples", rate)
    assert loss.startswith("loss of the last step: ")


def test_train_with_config_is_searched_and_trains_with_what_was_found(tmp_path: Path, storage: str) -> None:
    result = search("train_with_config.py", storage, memory_limit="1GiB", max_batch=4, accumulate=2, precision="bf16")
    (tmp_path / "autotune.json").write_text(to_text(document(result)))
    size = result.answer.recommended_batch
    tuned, rate, loss, against = train_with_config(tmp_path)
    assert tuned == f"Tuned(autotune.json: batch {size}, accumulate 2, cpu)"
    assert rate.endswith(f"samples/s over 3 steps of {size} x 2 samples")
    assert loss.startswith("loss of the last step: ")
    measured = document(result).evidence.samples_per_second
    assert re.fullmatch(rf"[+-][\d.]+ % against the {measured:,.1f} samples/s that autotune measured", against)


def test_the_diff_that_train_with_config_shows_is_what_it_does() -> None:
    text = (EXAMPLES / "train_with_config.py").read_text()
    doc, code = text.split('"""', 2)[1:]
    added = [line.strip()[1:].strip() for line in doc.splitlines() if line.strip().startswith("+")]
    marked = re.findall(r"^ *(.*?)  # (\d)$", code, re.MULTILINE)
    assert [line for line, _ in marked] == added
    assert [number for _, number in marked] == ["1", "2", "3", "4", "5"]


def test_train_script_is_tuned_by_the_command_that_it_and_the_readme_show(
    tmp_path: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = EXAMPLES / "train_script.py"
    shown = "python examples/train_script.py --batch-size {batch} --output {scratch}"
    for text in (script.read_text(), (EXAMPLES.parent / "README.md").read_text()):
        assert f"autotune search --memory-limit 512MiB --device cpu -- \\\n    {shown}" in text.replace(
            "        ", "    "
        )
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, str(script), *shown.split()[2:]]
    plan = api.plan("", command=words, device="cpu", memory_limit="512MiB", max_batch=2)
    result = api.search(plan, storage=storage)
    assert result.answer.max_batch == 2
    assert result.workload.data_set_size == 2048
    command = document(result).workload.command
    assert command == " ".join([*words[:-3], str(result.answer.recommended_batch), "--output", "'{scratch}'"])
    assert not (tmp_path / "trained").exists()


def train_on_two_ranks(name: str, folder: Path) -> tuple[str, str]:
    """What rank 0 prints, and what is told on stderr; fails unless each rank ends well and has let go of its group by then.

    A thread of gloo that still runs when Python ends makes it abort now and then, on a busy machine more often.
    """
    script = folder / "as_typed.py"
    script.write_text(AS_TYPED.format(example=str(EXAMPLES / name)))
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, str(script), "--steps", "2"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    left = [(folder / f"threads_of_{rank}").read_text() for rank in (0, 1)]
    assert left == ["[]", "[]"], "of a group that was not destroyed"
    return done.stdout, done.stderr


def recommend_here(folder: Path, settings: Settings) -> int:
    """Write the file of a search that was made on this machine for two ranks; its batch."""
    result = with_settings(settings)
    machine = replace(MACHINE, **asdict(look_at_device("cpu")))
    made = json.loads(to_text(document(replace(result, machine=machine, plan=replace(result.plan, world=2)))))
    made["workload"]["parameters"] = None
    (folder / "autotune.json").write_text(json.dumps(made))
    return int(made["batch"]["micro_batch"])


def test_ddp_trains_on_two_ranks_without_a_file(tmp_path: Path) -> None:
    printed, _ = train_on_two_ranks("ddp.py", tmp_path)
    assert printed.startswith("DistributedDataParallel, AdamW: 2 ranks x 16 x 1 samples\nloss of step 2: ")


def test_fsdp_trains_on_two_ranks_as_the_file_says(tmp_path: Path) -> None:
    settings = Settings(parallel=Parallel.FSDP, reshard=False, optimizer=OptimizerKind.FUSED, accumulate=2)
    batch = recommend_here(tmp_path, settings)
    printed, told = train_on_two_ranks("fsdp.py", tmp_path)
    assert printed.startswith(f"FSDPBytesGPT, AdamW: 2 ranks x {batch} x 2 samples\nloss of step 2: ")
    assert "StaleConfig" not in told


@pytest.mark.parametrize("name", ["ddp.py", "fsdp.py"])
def test_the_diffs_of_trainings_on_several_ranks_are_what_they_do(name: str) -> None:
    doc, code = (EXAMPLES / name).read_text().split('"""', 2)[1:]
    added = [line.strip()[1:].strip() for line in doc.splitlines() if line.strip().startswith("+")]
    marked = re.findall(r"^ *(.*?)  # (\d)$", code, re.MULTILINE)
    assert [line for line, _ in marked] == added
    assert [int(number) for _, number in marked] == list(range(1, len(added) + 1))


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_is_run_by_a_test(name: str) -> None:
    here = Path(__file__)
    frameworks = here.parents[1] / "integration" / "test_framework_examples.py"
    page = here.parents[2] / "docs" / "diagnose.md"  # its commands are run by test_docs.py
    assert f'"{name}"' in here.read_text() + frameworks.read_text() or f"examples/{name} --" in page.read_text()
