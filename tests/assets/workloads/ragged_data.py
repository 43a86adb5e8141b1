"""A data set of 200 sequences of which number 137 is by far the longest; batches are padded to their longest member."""

import torch
from torch import nn

LENGTHS = [10 + number % 7 for number in range(200)]
LENGTHS[137] = 90


class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return torch.full((LENGTHS[index],), index)


def make_dataset():
    return Sequences()


def collate(samples):
    return nn.utils.rnn.pad_sequence(samples, batch_first=True)


def make_model():
    return nn.Embedding(200, 4)


def loss(model, batch):
    return model(batch).mean()
