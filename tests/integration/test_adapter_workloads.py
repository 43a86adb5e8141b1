"""Real Trainers and LightningModules as workloads: trained as their frameworks train them, limits as a sweep finds them."""

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune import api
from autotune.model import Budget, Cause, Checkpointing, Form, Question, Reason, SearchResult, Settings
from autotune.probe import linux
from autotune.probe.launcher import Launcher
from autotune.units import GIB
from tests.integration.conftest import Library
from tests.process.support import ROOT, clean_environment, run
from tests.unit.workload_files import load_file

pytestmark = pytest.mark.integrations

ASSETS = ROOT / "tests" / "assets" / "frameworks"
STEP = 16
BUDGET = Budget(limit_bytes=4 * GIB, source="test", capacity_bytes=4 * GIB, others_bytes=0, headroom_bytes=0)


def search(file: str, storage: Path, *args: str, **options: Any) -> SearchResult:
    plan = api.plan(str(ASSETS / file), script_args=args, device="cpu", recommend=False, timeout_s=60.0, **options)
    return api.search(plan, storage=str(storage / "ledger.sqlite3"))


def largest_of_a_sweep(result: SearchResult, monkeypatch: pytest.MonkeyPatch) -> int:
    """The largest size that fits in the long form; every size is probed, up to the first failure above the answer."""
    monkeypatch.setattr(linux, "IS_LINUX", False)  # long probes are spawned anyway: no zygote to fork from
    fitting = 0
    with Launcher(result.plan.source, timeout_s=60, seed=result.plan.seed) as launcher:
        launcher.machine = result.machine
        for size in range(STEP, result.answer.max_batch + 10 * STEP, STEP):
            question = Question(batch_size=size, form=Form.LONG, reason=Reason.CERTIFY, settings=result.settings)
            if launcher.probe(question, result.budget, 0).fits:
                fitting = size
            elif size > result.answer.max_batch:
                break
    return fitting


@pytest.mark.parametrize(
    ("file", "module", "limit"), [("bert.py", "transformers", "440MiB"), ("lit.py", "lightning", "360MiB")]
)
def test_c05_the_limit_is_that_of_a_sweep(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, module: str, limit: str
) -> None:
    library(module)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # threads allocate side by side, in an order of their own
    result = search(file, tmp_path, memory_limit=limit, multiple_of=STEP)
    answer = result.answer
    assert answer.refuted_at == answer.max_batch + STEP
    assert answer.limited_by == Cause.HOST_MEMORY
    assert result.certificate.measurement.evaluated
    assert answer.max_batch == largest_of_a_sweep(result, monkeypatch)


def test_a_trainer_in_a_probe_is_on_no_device_writes_and_reports_nothing(library: Library, tmp_path: Path) -> None:
    library("transformers")
    (tmp_path / "model.py").write_text((ASSETS / "bert.py").read_text().replace("use_cpu=True", "use_cpu=False"))
    argv = [sys.executable, "-m", "autotune", "max-batch", "model.py", "--device", "cpu", "--max-batch", "1"]
    done = run(
        [*argv, "--storage", "ledger", "--json", "--", "bf16"], tmp_path
    )  # bf16 is refused off GPUs, but for use_cpu
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["settings"]["precision"], document["batch"]["accumulate"]) == ("bf16", 2)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("ledger")) == ["model.py"]


def test_what_is_recognised_in_a_trainer_is_told(library: Library, tmp_path: Path) -> None:
    library("transformers")
    argv = [sys.executable, "-m", "autotune", "inspect", str(ASSETS / "bert.py"), "--device", "cpu", "--json"]
    done = run([*argv, "--", "bf16"], tmp_path)
    assert done.returncode == 0, done.stderr
    workload = json.loads(done.stdout)["workload"]
    lines = {line["what"]: (line["found"], line["why"]) for line in workload["recognised"]}
    assert lines["train step"] == ("Trainer.compute_loss", "what the Trainer's training_step calls")
    assert lines["optimizer"][1] == "optim adamw_torch, weight decay 0.1 but for biases and norms"
    assert lines["settings"][0] == "precision bf16, accumulate 2"
    assert workload["data_set_size"] == 96


STEPS_ALONE = """
import json, os, runpy, sys, traceback
import torch._dynamo
from transformers import BertForSequenceClassification, Trainer
sys.argv = ["bert.py", {kind!r}]
for how in {ways!r}:  # each in a process of its own, in which nothing but imports was done before
    if os.fork() == 0:
        code = 1
        try:
            names = {{**runpy.run_path({file!r}), "json": json, "torch": torch}}
            torch.manual_seed(0)
            names["trainer"] = names["make_trainer"]()
            exec(how, names)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)
    if os.wait()[1] != 0:
        sys.exit(1)
"""
BY_TRAINER = """
trainer.create_optimizer()
model, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
trainer.current_gradient_accumulation_steps = 1
trainer.is_in_train = True
batch = next(iter(trainer.get_train_dataloader().__class__(trainer.train_dataset, 4, collate_fn=trainer.data_collator)))
losses = []
for _ in range(3):
    samples, items = trainer.get_batch_samples(iter([dict(batch)]), 1, trainer.args.device)
    losses.append(float(trainer.training_step(model, samples[0], items)))
    trainer.optimizer.step()
    model.zero_grad()
print(json.dumps({"losses": losses}))
"""
BY_AUTOTUNE = """
from autotune.apply import Applied
from autotune.model import Settings
from autotune.workload.adapters.adapter import Subject
from autotune.workload.adapters.table import adapted
from autotune.workload.task import Workload
found = adapted(Subject(thing=trainer, name="trainer", why="", target="bert.py"))
workload = Workload("bert.py", found.parts, found.recognised)
from dataclasses import replace
applied = Applied(replace(workload.own, accumulate=1), torch.device("cpu"))
model = applied.prepare(workload.make_model())
model.train()
optimizer = workload.make_optimizer([p for p in model.parameters() if p.requires_grad])
batch = trainer.data_collator(trainer.train_dataset[:4])
losses = []
for _ in range(3):
    applied.zero_grad(optimizer)
    with applied.autocast():
        loss = workload.loss(model, batch)
    losses.append(float(loss.detach()))
    applied.backward(loss)
    applied.step(optimizer)
print(json.dumps({"losses": losses}))
"""


@pytest.mark.parametrize("kind", ["bf16", "lora"])
def test_steps_are_those_of_the_trainers_own_loop(library: Library, kind: str) -> None:
    """Losses of three steps, equal to the last bit: loss, precision, optimizer and its groups, trained parameters."""
    library("transformers")
    if kind == "lora":
        library("peft")
    code = STEPS_ALONE.format(kind=kind, file=str(ASSETS / "bert.py"), ways=(BY_TRAINER, BY_AUTOTUNE))
    done = run([sys.executable, "-c", code], ASSETS, clean_environment(PYTHONWARNINGS="ignore"))
    assert done.returncode == 0, done.stderr
    told = (line for line in done.stdout.splitlines() if line.startswith('{"losses"'))  # libraries print as well
    losses = [json.loads(line)["losses"] for line in told]
    assert len(losses) == 2 and losses[0] == losses[1]
    assert len(set(losses[0])) == 3 and all(math.isfinite(loss) for loss in losses[0])


def test_c30_checkpointing_a_lora_model_trains_the_same_parameters_as_without(library: Library, tmp_path: Path) -> None:
    """With a frozen body no input of a block needs a gradient, which re-entrant checkpointing loses."""
    library("peft")
    text = (ASSETS / "bert.py").read_text().partition("def make_trainer")[0]
    batch = "{'input_ids': torch.ones(batch_size, 8).long(), 'labels': torch.zeros(batch_size).long()}"
    (tmp_path / "model.py").write_text(f"{text}\ndef make_batch(batch_size):\n    return {batch}\n")
    plan = api.plan(str(tmp_path / "model.py"), script_args=["lora"], device="cpu")
    with Launcher(plan.source, timeout_s=60, seed=0) as launcher:
        workload, _ = launcher.describe("cpu", 1)
        question = Question(
            batch_size=2,
            form=Form.COMPARE,
            reason=Reason.COMPARE,
            settings=Settings(checkpointing=Checkpointing.OWN),
            reference=Settings(),
        )
        compared = launcher.probe(question, BUDGET, 0)
    assert workload.traits.frozen and workload.traits.own_checkpointing == "transformers"
    assert 0 < workload.trainable_parameters < workload.parameters / 10
    assert compared.fits, compared.failure
    assert compared.measurement.comparison is not None
    assert compared.measurement.comparison.cosine == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("form", ["class", "object", "function"])
def test_a_bare_model_of_transformers_is_taken_with_the_files_batches(
    library: Library, tmp_path: Path, form: str
) -> None:
    library("transformers")
    config = "BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)"
    net = {
        "class": f"class Net(BertForMaskedLM):\n    def __init__(self):\n        super().__init__({config})\n",
        "object": f"net = BertForMaskedLM({config})\n",
        "function": f"def net():\n    return BertForMaskedLM({config})\n",
    }[form]
    text = "import torch\nfrom transformers import BertConfig, BertForMaskedLM\ndef make_batch(batch_size):\n"
    text += "    ids = torch.ones(batch_size, 4, dtype=torch.long)\n    return {'input_ids': ids, 'labels': ids}\n"
    (tmp_path / "model.py").write_text(text + net)
    workload = load_file(tmp_path / "model.py", {"class": "", "object": "net", "function": "net"}[form])
    assert workload.loss(workload.make_model(), workload.make_batch(3)).requires_grad
