"""Every function a model file may have."""

import torch
from torch import nn


def make_model():
    return nn.Linear(4, 3)


def make_batch(batch_size):
    return {"x": torch.zeros(batch_size, 4), "y": torch.zeros(batch_size, dtype=torch.long)}


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["y"])


def make_optimizer(params):
    return torch.optim.SGD(params, lr=0.1)


def evaluate(model, batch):
    return model(batch["x"]).argmax(dim=1)
