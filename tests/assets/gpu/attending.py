"""A small transformer: two blocks with fused attention, 256 tokens a sample. A batch is small to make and much to compute."""

import torch
from torch import nn
from torch.nn import functional

TOKENS = 256
WIDTH = 512
HEAD = 64
VOCABULARY = 512


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, -1, HEAD).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.zeros(TOKENS, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def make_model() -> nn.Module:
    return Attending()


def make_batch(batch_size: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (batch_size, TOKENS))


def loss(model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
    logits = model(batch)[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())


def make_optimizer(params: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(params, lr=1e-4)
