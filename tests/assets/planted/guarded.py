"""Workloads of which some settings train something else: `guarded.py KIND`."""

import torch
from arguments import follow
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

KIND = ""
WIDTH = 8


def take(kind: str) -> None:
    global KIND
    KIND = kind


follow(take)


class Block(nn.Module):
    """A residual block with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.drop = nn.Dropout(0.3)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH) if KIND == "norm" else nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.drop(torch.relu(self.up(self.norm(x)))))


class Model(nn.Module):
    """Blocks on the raw data; its own switch checkpoints them re-entrantly, whatever it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)
        self.checkpoints = False

    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs: object = None) -> None:
        self.checkpoints = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if KIND == "norm":
            x = x.clone().requires_grad_()  # so that gradients are kept, and only the norms move twice
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.checkpoints else block(x)
        return x.mean(1, keepdim=True) if KIND == "headless" else self.head(x)


def make_model() -> nn.Module:
    return Model()


def make_batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(batch_size, WIDTH)
    return x, x.sum(1, keepdim=True).sin()


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    out = model(x)
    if KIND == "saturating":
        return -torch.log(1 - torch.sigmoid(out + 10 - out.detach())).mean()
    if KIND == "mixing":
        return (torch.zeros(2, 1).index_add(0, torch.arange(len(x)) % 2, out) ** 2).mean()
    if KIND == "no bf16" and torch.is_autocast_enabled("cpu"):
        raise ValueError("only float32 is allowed here")
    if KIND == "contrastive":
        alike = x @ out.expand(-1, WIDTH).T
        return functional.cross_entropy(alike, torch.arange(len(x)))
    return functional.mse_loss(out.float(), y)


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-3)
