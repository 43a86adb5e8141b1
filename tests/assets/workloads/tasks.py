"""Two task classes, a factory and an object, to be picked by NAME."""

import torch
from torch import nn


class Small:
    width = 2

    def make_model(self):
        return nn.Linear(self.width, 1)

    def make_batch(self, *, batch_size):
        return torch.zeros(batch_size, self.width), torch.zeros(batch_size, 1)


class Large(Small):
    width = 5


def huge() -> Small:
    task = Small()
    task.width = 9
    return task


ready = huge()
