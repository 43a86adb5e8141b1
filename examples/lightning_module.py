"""A LightningModule and its data module; autotune calls training_step, validation_step and configure_optimizers.

    autotune inspect examples/lightning_module.py                          # what of it will be probed
    autotune max-batch examples/lightning_module.py
    python examples/lightning_module.py --memory-limit 2GiB                # finds the batch size, then trains with it

Needs lightning. No data is downloaded: pictures are random numbers.
"""

import argparse
from typing import Any

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
SIZE = 32

Batch = tuple[torch.Tensor, torch.Tensor]


class Pictures(L.LightningDataModule):
    """Random pictures, (3, 32, 32), with labels."""

    def __init__(self, batch_size: int = 16) -> None:
        super().__init__()
        self.save_hyperparameters()  # hparams.batch_size is what Tuner sets

    def setup(self, stage: str) -> None:
        """Make the pictures."""
        generator = torch.Generator().manual_seed(0)
        pictures = torch.randn(2400, 3, SIZE, SIZE, generator=generator)
        labels = torch.randint(CLASSES, (2400,), generator=generator)
        self.train_set = TensorDataset(pictures[:2000], labels[:2000])
        self.val_set = TensorDataset(pictures[2000:], labels[2000:])

    def train_dataloader(self) -> DataLoader[Any]:
        """For training."""
        return DataLoader(self.train_set, batch_size=self.hparams.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        """For validation."""
        return DataLoader(self.val_set, batch_size=self.hparams.batch_size)


class Classifier(L.LightningModule):
    """A small convolutional network."""

    def __init__(self, width: int = 32, learning_rate: float = 1e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(2 * width * (SIZE // 2) ** 2, CLASSES),
        )

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Cross-entropy of a batch."""
        pictures, labels = batch
        loss = F.cross_entropy(self.net(pictures), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        """Accuracy of a batch."""
        pictures, labels = batch
        self.log("accuracy", (self.net(pictures).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> dict[str, Any]:
        """AdamW with a schedule over the whole training."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)
        steps = int(self.trainer.estimated_stepping_batches)
        return {
            "optimizer": optimizer,
            "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps),
        }


if __name__ == "__main__":
    from autotune.integrations.lightning import Tuner

    parser = argparse.ArgumentParser(description="Find the batch size of a small convolutional network, and train it.")
    parser.add_argument("--memory-limit", default=None, help="as for autotune max-batch: 2GiB")
    parser.add_argument("--largest", type=int, default=None, help="try no larger batch")
    given = parser.parse_args()
    trainer = L.Trainer(max_steps=5, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    model, data = Classifier(), Pictures()
    found = Tuner(trainer, memory_limit=given.memory_limit).scale_batch_size(
        model, datamodule=data, max_val=given.largest
    )
    trainer.fit(model, datamodule=data)
    print(f"trained {trainer.global_step} steps at batch {found}")
