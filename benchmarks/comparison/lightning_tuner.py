"""Lightning's ``Tuner.scale_batch_size`` on a workload file, in a process of its own. Prints one JSON line.

Everything that decides the answer is Lightning's default: 3 steps a trial, from 2 on, at most 25 trials, the margin of
5 % in binsearch mode. Logger, checkpoints and progress are off, since they cost time and decide nothing.
"""

from tempfile import TemporaryDirectory
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.tuner import Tuner
from torch.utils.data import DataLoader, Dataset

from benchmarks.comparison.child import STEPS, Trials, Workload, load, parser, prepare

SAMPLES = 1 << 20
"""Length of the data set: the tuner takes no batch larger than it, and none that large is tried."""
_PRECISIONS = {"default": "32-true", "bf16": "bf16-mixed"}


class Batches(Dataset[Any]):
    """A data set that hands out whole batches, so that loading costs what making one batch costs."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        return self._workload.make_batch(1)

    def __getitems__(self, indices: list[int]) -> Any:
        """What the loader calls for the samples of one batch."""
        return self._workload.make_batch(len(indices))


def as_it_is(batch: Any) -> Any:
    """Nothing to collate."""
    return batch


class Trained(LightningModule):  # type: ignore[misc]  # not installed where types are checked
    """The workload as a user of Lightning would write it."""

    def __init__(self, workload: Workload, trials: Trials) -> None:
        super().__init__()
        self.batch_size = 2
        self.model = workload.make_model()
        self._workload = workload
        self._trials = trials

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self._workload.loss(self.model, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self._workload.make_optimizer(list(self.model.parameters()))

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Batches(self._workload), batch_size=self.batch_size, collate_fn=as_it_is)

    def on_train_start(self) -> None:
        self._trials.begin(self.batch_size)

    def on_train_end(self) -> None:
        self._trials.end()


def main() -> None:
    """Find and print."""
    options = parser(__doc__)
    options.add_argument("--mode", choices=["power", "binsearch"], required=True)
    asked = options.parse_args()
    workload = load(asked.workload)
    prepare(asked.device, asked.cap_bytes)
    trials = Trials(asked.device)
    with TemporaryDirectory() as folder:  # the tuner keeps the untrained model in a file meanwhile
        trainer = Trainer(
            accelerator="gpu" if asked.device == "cuda" else "cpu",
            devices=1,
            precision=_PRECISIONS[asked.precision],
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
        )
        found = Tuner(trainer).scale_batch_size(
            Trained(workload, trials), mode=asked.mode, steps_per_trial=STEPS, max_trials=25
        )
    trials.answer(found)


if __name__ == "__main__":
    main()
