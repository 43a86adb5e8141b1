"""A LightningModule of about 4 MiB a sample, with loaders of its own."""

import ctypes
import sys

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Every large tensor gets a mapping of its own and gives it back, so that the heap does not fragment by chance.
if sys.platform == "linux":
    ctypes.CDLL(None).mallopt(-3, 128 * 1024)  # M_MMAP_THRESHOLD, see mallopt(3)

FLOATS = (1 << 20) // 4


class Lit(L.LightningModule):
    def __init__(self, batch_size=2):
        super().__init__()
        self.save_hyperparameters()
        self.scale = nn.Parameter(torch.ones(1))

    def training_step(self, batch, batch_idx):
        (x,) = batch
        loss = torch.tanh(torch.ones(len(x), FLOATS, device=x.device) * self.scale).mean()
        self.log("loss", loss, on_epoch=True)
        self.logger.experiment.add_scalar("loss", loss.detach(), self.global_step)
        return {"loss": loss}

    def validation_step(self, batch, batch_idx):
        self.log("size", float(len(batch[0])))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.2, total_steps=self.trainer.estimated_stepping_batches
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    def _loader(self):
        return DataLoader(TensorDataset(torch.zeros(400, 1)), batch_size=self.hparams.batch_size)

    train_dataloader = val_dataloader = _loader
