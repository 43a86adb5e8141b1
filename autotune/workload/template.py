"""The model file that ``autotune init`` writes. Parent side: text only."""

MODEL_FILE = '''\
"""What autotune shall train: a model, its batches, and how it learns. Runs as it is; replace the parts by your own.

    autotune inspect model.py     what was recognised in this file, and why
    autotune max-batch model.py   the largest batch that surely trains on this machine
    autotune search model.py      the same, and the fastest safe batch with it

autotune loads this file in processes of its own. Nothing that starts your training may run at import:
put that under `if __name__ == "__main__":`.
"""

import torch
from torch import nn
from torch.nn import functional as F

WORDS = 1000  # size of the vocabulary
LENGTH = 64  # longest sequence of the training data
WIDTH = 128


class Model(nn.Module):
    """A small language model."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        length = tokens.shape[1]
        hidden = self.words(tokens) + self.places(torch.arange(length, device=tokens.device))
        ahead = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(diagonal=1)
        return self.head(self.layers(hidden, mask=ahead))


def make_model():
    """Required. The model to train, made on the CPU; autotune moves it to the device."""
    return Model()


def make_batch(batch_size):
    """Required, unless there is make_dataset below. A batch of exactly batch_size samples, on the CPU.

    A tensor, tuple, dict or data class. Make the samples as large as the largest of your real data:
    a batch is only safe if the longest sequence or largest picture is safe.
    """
    tokens = torch.randint(WORDS, (batch_size, LENGTH + 1))
    return tokens[:, :-1], tokens[:, 1:]


# ---- Optional. Without these, autotune uses what is said beside each. ----


def loss(model, batch):
    """The scalar to minimise. Default: model(**batch).loss for a dict; cross-entropy for (input, integer target); mean
    squared error for (input, float target)."""
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def make_optimizer(params):
    """The optimizer; its state takes memory, so name the one you train with. Default: AdamW."""
    return torch.optim.AdamW(params, lr=3e-4)


# def evaluate(model, batch):
#     """Run in eval mode between training steps, as validation in your training does. Default: none."""
#     with torch.no_grad():
#         return model(batch[0])


# def make_dataset():
#     """Real data instead of make_batch: autotune looks for its largest samples. Leave make_batch out then. May return
#     your DataLoader as well: its data set, collate_fn, sampler and workers are used, its batch size is not."""
#     return [(torch.zeros(LENGTH, dtype=torch.long), torch.zeros(LENGTH, dtype=torch.long)) for _ in range(500)]


# def collate(samples):
#     """Samples of make_dataset -> a batch, such as your loader's collate_fn. Default: PyTorch's default_collate."""
#     return torch.utils.data.default_collate(samples)


# def make_loader(batch_size):
#     """Instead of make_batch and make_dataset, for batches that a sampler composes: a DataLoader, or any iterable of
#     batches. batch_size is what your sampler takes, a token budget for example; the answer is in the same unit."""
#     return torch.utils.data.DataLoader(make_dataset(), batch_size, shuffle=True)


# batch_dim = 1  # which dimension of the batch's tensors counts its samples; needed only if autotune cannot tell


# def shorten(batch, share):
#     """The same batch with samples of this share (0 < share < 1) of their length. Write it if the batches of your
#     training differ in length: mixed lengths leave gaps in memory, and the largest batch is smaller. Default: all
#     batches are of full length, with make_dataset of the lengths found there."""
#     tokens, targets = batch
#     length = round(LENGTH * share)
#     return tokens[:, :length], targets[:, :length]


if __name__ == "__main__":
    model = make_model()
    print("loss of an untrained model:", float(loss(model, make_batch(2)).detach()))
'''
