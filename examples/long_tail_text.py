"""Texts of 10 to 60 tokens and one of 400: the batch that kills a run is the one with the long text in it.

autotune takes batches from the data set itself and always puts the longest samples in, so the size it finds survives a
whole shuffled epoch. Torch only.

    autotune search examples/long_tail_text.py --memory-limit 512MiB
    python examples/long_tail_text.py 8        # one shuffled epoch at batch 8
"""

import random
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCABULARY = 1000
SAMPLES = 200
LONGEST = 400
PADDING = 0


class Texts(Dataset[torch.Tensor]):
    """Token sequences of very different lengths; sample 123 is the long one."""

    def __init__(self) -> None:
        lengths = random.Random(0)
        self.lengths = [LONGEST if i == 123 else lengths.randint(10, 60) for i in range(SAMPLES)]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(index)
        return torch.randint(1, VOCABULARY, (self.lengths[index],), generator=generator)


def make_dataset() -> Texts:
    """Given instead of make_batch: autotune looks for the worst batch in it."""
    return Texts()


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    """Pad to the longest of the batch: (batch, longest)."""
    return pad_sequence(samples, batch_first=True, padding_value=PADDING)


class Encoder(nn.Module):
    """A small transformer: tokens (batch, length) -> logits (batch, length, 1000)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(tokens)))


def make_model() -> nn.Module:
    """What is trained."""
    return Encoder()


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    """Reconstruct every token that is not padding."""
    return F.cross_entropy(model(batch).flatten(0, 1), batch.flatten(), ignore_index=PADDING)


def train_epoch(batch_size: int) -> float:
    """One shuffled epoch over the data, the long sample included; returns the last loss."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters())
    last = float("nan")
    for batch in DataLoader(Texts(), batch_size=batch_size, shuffle=True, collate_fn=collate):
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, batch)
        value.backward()
        optimizer.step()
        last = value.item()
    return last


if __name__ == "__main__":
    print(f"last loss of the epoch: {train_epoch(int(sys.argv[1]) if len(sys.argv) > 1 else 8):.3f}")
