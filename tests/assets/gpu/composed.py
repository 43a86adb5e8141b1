"""`composed.py KIND`: models whose peak is taken apart: `gpt2` (124 M parameters, from its configuration), `lora` (the same,
frozen, with low-rank adapters on its attention), `resnet50`. Seeded by whoever runs it; nothing is downloaded."""

import sys
from typing import Any

import torch
from torch import nn

KIND = sys.argv[1]
LENGTH, WORDS = 512, 50257


class Adapted(nn.Module):
    """A frozen layer and a low-rank correction of it."""

    def __init__(self, layer: nn.Module, features: int, out: int, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(features, rank, bias=False)
        self.up = nn.Linear(rank, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.up(self.down(x))  # type: ignore[no-any-return]


def _gpt2() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False))


def make_model() -> nn.Module:
    if KIND == "resnet50":
        import timm

        return timm.create_model("resnet50")  # type: ignore[no-any-return]
    model: nn.Module = _gpt2()
    if KIND == "lora":
        model.requires_grad_(False)
        width = model.config.n_embd  # type: ignore[union-attr]
        for block in model.transformer.h:  # type: ignore[union-attr]
            block.attn.c_attn = Adapted(block.attn.c_attn, width, 3 * width)
    return model


def make_batch(batch_size: int) -> Any:
    if KIND == "resnet50":
        return torch.randn(batch_size, 3, 224, 224), torch.randint(0, 1000, (batch_size,))
    return {"input_ids": torch.randint(0, WORDS, (batch_size, LENGTH))}


def loss(model: nn.Module, batch: Any) -> torch.Tensor:
    if KIND == "resnet50":
        return nn.functional.cross_entropy(model(batch[0]), batch[1])
    return model(**batch, labels=batch["input_ids"]).loss  # type: ignore[no-any-return]


def _plain(batch_size: int) -> None:
    """Train as anybody would and print what the allocator counted: bytes, one JSON object."""
    import json

    torch.manual_seed(0)
    model = make_model().cuda().train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters)
    allocated = torch.cuda.memory_allocated
    activations = 0
    for _ in range(4):
        batch = make_batch(batch_size)
        batch = {k: v.cuda() for k, v in batch.items()} if isinstance(batch, dict) else [b.cuda() for b in batch]
        torch.cuda.reset_peak_memory_stats()
        optimizer.zero_grad()
        before = allocated()
        value = loss(model, batch)
        activations = allocated() - before
        torch.autograd.backward(value)
        del value
        optimizer.step()
    state = [t for s in optimizer.state.values() for t in s.values()]
    print(
        json.dumps(
            {
                "peak": torch.cuda.max_memory_allocated(),
                "saved_activations": activations,
                "weights": sum({p.untyped_storage().data_ptr(): p.nbytes for p in model.parameters()}.values()),
                "gradients": sum(p.nbytes for p in parameters),
                "optimizer_state": sum(t.nbytes for t in state if t.is_cuda),
            }
        )
    )


if __name__ == "__main__":
    _plain(int(sys.argv[2]))
