"""A training script with transformers' Trainer: its own loader, accumulation, an evaluation now and then."""

import argparse

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

WIDTH = 1 << 16
"""Of the activations, 256 KiB a sample each."""

parser = argparse.ArgumentParser()
parser.add_argument("--per_device_train_batch_size", type=int, default=8)
parser.add_argument("--output_dir", default="trained")
args = parser.parse_args()


class Model(nn.Module):
    """Wide for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Sigmoid(), nn.Tanh(), nn.Linear(WIDTH, 4))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Samples(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"inputs": torch.full((8,), index / 2000), "labels": torch.tensor(index % 4)}


Trainer(
    model=Model(),
    args=TrainingArguments(
        output_dir=args.output_dir,
        per_device_train_batch_size=args.per_device_train_batch_size,
        per_device_eval_batch_size=16,
        gradient_accumulation_steps=2,
        max_steps=40,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        optim="sgd",
        logging_steps=1,
        use_cpu=True,
        disable_tqdm=True,
    ),
    train_dataset=Samples(),
    eval_dataset=torch.utils.data.Subset(Samples(), range(48)),
).train()
