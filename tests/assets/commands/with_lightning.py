"""A training script with Lightning: its own loader, accumulation, a sanity validation before training, a checkpoint."""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1 << 16
"""Of the activations, 256 KiB a sample each."""

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--dir", default="trained")
args = parser.parse_args()


class Module(lightning.LightningModule):
    """Wide for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Sigmoid(), nn.Tanh(), nn.Linear(WIDTH, 4))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layers(inputs), labels)

    def validation_step(self, batch: list[torch.Tensor]) -> None:
        self.log("val", self.training_step(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
data = TensorDataset(torch.randn(2000, 8), torch.randint(0, 4, (2000,)))
trainer = lightning.Trainer(
    max_steps=40,
    accelerator="cpu",
    accumulate_grad_batches=2,
    val_check_interval=4,
    limit_val_batches=2,
    default_root_dir=args.dir,
    log_every_n_steps=1,
    enable_progress_bar=False,
)
trainer.fit(
    Module(),
    DataLoader(data, batch_size=args.batch_size, shuffle=True),
    DataLoader(torch.utils.data.Subset(data, range(64)), batch_size=16),
)
