"""What the ranks of tests/process/test_parallel.py do: train under each sharing, and compare with one process alone.

One start of two processes serves all checks, since starting them costs more than the training.
"""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from autotune.apply import Applied, Unsupported
from autotune.apply.ranks import fill, is_sharded, local, unwrapped, whole
from autotune.model import Checkpointing, Compile, OptimizerKind, Parallel, Precision, Settings
from autotune.probe import gradients
from autotune.probe.side import Start
from autotune.probe.steps import storage_bytes

RANKS = 2
WIDTH, WORDS, LENGTH, BATCH, STEPS = 16, 32, 6, 4, 3
Batch = tuple[torch.Tensor, torch.Tensor]


class Block(nn.Module):
    """Two layers around a shortcut, as a transformer's; ``up`` and ``down`` can be split over ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same."""
        shortcut: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return shortcut


class Net(nn.Module):
    """Words to words; the last layer shares the weight of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length) to (batch, length, words)."""
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


PLAN = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}


def here() -> torch.device:
    """The device of this rank: gloo is for CPUs, NCCL for the CUDA devices in the order of the ranks."""
    if dist.get_backend() == "gloo":
        return torch.device("cpu")
    return torch.device("cuda", dist.get_rank())


def make_model(seed: int = 0) -> Net:
    """The same one for the same seed."""
    torch.manual_seed(seed)
    return Net()


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Mean over the samples."""
    logits = model(batch[0])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten())


def micro_batches(rank: int, step: int, count: int) -> list[Batch]:
    """Those that one rank sees in one step."""
    made = torch.Generator().manual_seed(1000 * step + rank)
    return [
        (
            torch.randint(0, WORDS, (BATCH, LENGTH), generator=made).to(here()),
            torch.randint(0, WORDS, (BATCH, LENGTH), generator=made).to(here()),
        )
        for _ in range(count)
    ]


def joined(ranks: int, step: int, count: int) -> Batch:
    """All that all ranks see in one step, as one batch."""
    parts = [part for rank in range(ranks) for part in micro_batches(rank, step, count)]
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def make_optimizer(applied: Applied, model: nn.Module) -> torch.optim.Optimizer:
    """Momentum shows whether every step was right, and does not blow rounding up as Adam's division does."""
    return applied.optimizer(torch.optim.SGD, model.parameters(), lr=0.1, momentum=0.9)


def trained(settings: Settings, rank: int, seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer, Applied]:
    """This rank's model after the steps; ranks of tensor parallel all see what rank 0 sees."""
    applied = Applied(settings, here())
    model: nn.Module = applied.prepare(make_model(seed), PLAN)
    optimizer = make_optimizer(applied, model)
    seen = rank if settings.parallel.replicas(RANKS) > 1 else 0
    for step in range(STEPS):
        applied.train_step(model, optimizer, loss, micro_batches(seen, step, settings.accumulate))
    return model, optimizer, applied


def alone(settings: Settings) -> Net:
    """One process after the same steps, each on all samples at once."""
    model = make_model().to(here())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ranks = settings.parallel.replicas(RANKS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, joined(ranks, step, settings.accumulate)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model


def furthest(model: nn.Module, reference: nn.Module) -> float:
    """Largest distance of a parameter from where it should be, as a share of the largest in its tensor."""
    ours = {name: whole(parameter.detach()) for name, parameter in unwrapped(model).named_parameters()}
    theirs = {name: parameter.detach().to(here()) for name, parameter in reference.named_parameters()}
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max()) for name in ours)


def bytes_here(model: nn.Module) -> int:
    """Of the parameters, on this rank."""
    return sum(local(parameter).numel() * parameter.element_size() for parameter in model.parameters())


SHARINGS: dict[str, Settings] = {
    "ddp": Settings(parallel=Parallel.DDP),
    "ddp, gradients in buckets": Settings(parallel=Parallel.DDP, bucket_view=True, bucket_mb=1),
    "ddp, static graph": Settings(parallel=Parallel.DDP, static_graph=True),
    "ddp, three micro-batches": Settings(parallel=Parallel.DDP, accumulate=3),
    "ddp, gradients in buckets, three micro-batches": Settings(parallel=Parallel.DDP, bucket_view=True, accumulate=3),
    "ddp, static graph, three micro-batches": Settings(parallel=Parallel.DDP, static_graph=True, accumulate=3),
    "ddp, checkpointed": Settings(parallel=Parallel.DDP, checkpointing=Checkpointing.BLOCKS),
    "fsdp": Settings(parallel=Parallel.FSDP),
    "fsdp, not resharded": Settings(parallel=Parallel.FSDP, reshard=False),
    "fsdp, three micro-batches": Settings(parallel=Parallel.FSDP, accumulate=3),
    "fsdp, not resharded, three micro-batches": Settings(parallel=Parallel.FSDP, reshard=False, accumulate=3),
    "fsdp, checkpointed": Settings(parallel=Parallel.FSDP, checkpointing=Checkpointing.BLOCKS),
    "fsdp, foreach": Settings(parallel=Parallel.FSDP, optimizer=OptimizerKind.FOREACH),
    "zero": Settings(parallel=Parallel.ZERO),
    "zero, two micro-batches": Settings(parallel=Parallel.ZERO, optimizer=OptimizerKind.FOREACH, accumulate=2),
    "tensor": Settings(parallel=Parallel.TENSOR),
    "tensor, two micro-batches": Settings(parallel=Parallel.TENSOR, optimizer=OptimizerKind.FOREACH, accumulate=2),
}
"""Each in full precision: one step of two ranks is one step of a process that sees the samples of both."""
OFFLOADED = {
    "fsdp, offloaded": Settings(parallel=Parallel.FSDP, offload=True),
    "fsdp, offloaded, three micro-batches": Settings(parallel=Parallel.FSDP, offload=True, reshard=False, accumulate=3),
}
"""Only where there is a device beside the host."""
COMPILED = {
    "ddp, compiled": Settings(parallel=Parallel.DDP, compile=Compile.DEFAULT),
    "fsdp, compiled": Settings(parallel=Parallel.FSDP, compile=Compile.DEFAULT),
}
"""Sixteen seconds more, for the GPU's tests."""


@dataclass
class Found:
    """What one rank saw, by the name of the check."""

    values: dict[str, object]

    def note(self, name: str, check: Callable[[], object]) -> None:
        """Keep what a check returns, or what it raised: others are to run all the same."""
        try:
            self.values[name] = check()
        except Exception as error:  # noqa: BLE001 - told to the test that asks for it
            self.values[name] = f"{type(error).__name__}: {error}"


def checks(rank: int, found: Found, sharings: dict[str, Settings]) -> None:
    """All of them, in an order that is the same on every rank."""
    for name, settings in sharings.items():
        found.note(name, lambda settings=settings: furthest(trained(settings, rank)[0], alone(settings)))  # type: ignore[misc]
    if sharings is COMPILED:
        return
    for name, check in others(rank):
        found.note(name, check)


def others(rank: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Checks of their own."""

    def shares() -> object:
        model = trained(SHARINGS["fsdp"], rank)[0]
        return [bytes_here(model), bytes_here(make_model()), all(is_sharded(p) for p in model.parameters())]

    def unequal(kind: Parallel) -> float:
        """Ranks whose models began apart train that of rank 0."""
        settings = Settings(parallel=kind)
        return furthest(trained(settings, rank, seed=5 * rank)[0], alone(settings))

    def half_precision(precision: Precision) -> object:
        settings = Settings(parallel=Parallel.FSDP, precision=precision, init_scale=256.0)
        model, _, applied = trained(settings, rank)
        taken = None if applied.scaler is None else applied.scaler.get_scale()
        return [
            furthest(model, alone(settings)),
            {str(local(p).dtype) for p in model.parameters()} == {"torch.float32"},
            taken,
        ]

    def shared_state() -> object:
        _, optimizer, _ = trained(SHARINGS["zero"], rank)
        inner = optimizer.optim  # type: ignore[attr-defined]
        return [type(optimizer).__name__, type(inner).__name__, len(inner.state), len(list(make_model().parameters()))]

    def checkpoint(name: str) -> object:
        model, optimizer, applied = trained(SHARINGS[name], rank)
        states = applied.states(model, optimizer)
        return [len(states["model"]), states["optimizer"] is not None]

    def remade() -> object:
        applied = Applied(Settings(parallel=Parallel.ZERO), here())
        model = applied.prepare(make_model())
        made = applied.reimplement(torch.optim.AdamW(model.parameters(), lr=0.25, weight_decay=0.5))
        group = made.param_groups[0]
        return [type(made).__name__, group["lr"], group["weight_decay"]]

    def refused(settings: Settings, model: nn.Module) -> object:
        try:
            Applied(settings, here()).prepare(model)
        except Unsupported as error:
            return str(error)
        return "nothing was refused"

    def shared_across_blocks() -> nn.Module:
        model = make_model()
        model.blocks[1].up.weight = model.blocks[0].up.weight  # type: ignore[union-attr]
        return model

    def unused() -> object:
        """A parameter without a gradient: DDP says so in the second step, unless it was told of the first."""
        told = []
        for static in (False, True):
            model = make_model()
            model.extra = nn.Linear(1, 1)
            applied = Applied(Settings(parallel=Parallel.DDP, static_graph=static), here())
            prepared = applied.prepare(model)
            optimizer = make_optimizer(applied, prepared)
            try:
                for step in range(STEPS):
                    applied.train_step(prepared, optimizer, loss, micro_batches(rank, step, 1))
                told.append("trained")
            except Unsupported as error:
                told.append(str(error).partition(";")[0])
        return told

    def fused_sgd() -> object:
        """PyTorch has no fused SGD for shards, and one of AdamW."""
        settings = Settings(parallel=Parallel.FSDP, optimizer=OptimizerKind.FUSED)
        applied = Applied(settings, here())
        model = applied.prepare(make_model())
        adam = applied.optimizer(torch.optim.AdamW, model.parameters())
        applied.train_step(model, adam, loss, micro_batches(rank, 0, 1))
        try:
            applied.train_step(model, make_optimizer(applied, model), loss, micro_batches(rank, 0, 1))
        except Unsupported as error:
            return str(error).partition(":")[0]
        return "nothing was refused"

    def side_by_side() -> object:
        """A probe's comparison of gradients: those of DDP kept, those of FSDP beside them, from the same weights."""
        sides = []
        for settings, seed in ((SHARINGS["ddp"], 0), (SHARINGS["fsdp"], 1)):
            applied = Applied(settings, here())
            sides.append((applied, applied.prepare(make_model(seed))))
        ddp, fsdp = (model for _, model in sides)
        start = Start(ddp)
        start.put_into(fsdp)
        for applied, model in sides:
            applied.backward(loss(model, micro_batches(rank, 0, 1)[0]))
        pairs = gradients.compare(fsdp, 1.0, gradients.keep(ddp, 1.0))
        held = sum(each.untyped_storage().nbytes() for each in map(local, fsdp.parameters()))
        counted = storage_bytes(fsdp.parameters())
        return [sorted(pairs), gradients.cosine(pairs.values()), gradients.norm_ratio(pairs.values()), held == counted]

    def filled() -> object:
        model = trained(SHARINGS["fsdp"], rank)[0]
        for parameter, content in zip(model.parameters(), make_model(3).parameters(), strict=True):
            fill(parameter, content.detach())
        return furthest(model, make_model(3))

    yield "shares of fsdp", shares
    for kind in (Parallel.DDP, Parallel.FSDP, Parallel.TENSOR):
        yield f"unequal beginnings, {kind}", lambda kind=kind: unequal(kind)  # type: ignore[misc]
    for precision in (Precision.BF16, Precision.FP16):
        yield f"fsdp, {precision}", lambda precision=precision: half_precision(precision)  # type: ignore[misc]
    yield "state of zero", shared_state
    yield "zero, remade", remade
    for name in ("ddp", "fsdp", "zero"):
        yield f"checkpoint of {name}", lambda name=name: checkpoint(name)  # type: ignore[misc]
    yield "filled shards", filled
    yield "side by side", side_by_side
    yield "unused parameters", unused
    yield "refused without blocks", lambda: refused(Settings(parallel=Parallel.FSDP), nn.Linear(2, 2))
    yield "refused with shared blocks", lambda: refused(Settings(parallel=Parallel.FSDP), shared_across_blocks())
    yield "refused without plan", lambda: refused(Settings(parallel=Parallel.TENSOR), make_model())
    frozen = make_model().requires_grad_(False)
    yield "refused with nothing to train", lambda: refused(Settings(parallel=Parallel.DDP), frozen)
    yield (
        "refused with unequal shapes",
        lambda: refused(Settings(parallel=Parallel.FSDP), nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 2 + rank))),
    )
    yield "refused by the optimizer", fused_sgd


def run(rank: int, directory: str, backend: str = "gloo", compiled: bool = False) -> None:
    """One rank; its findings are written to a file of its own."""
    os.environ["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    if backend == "nccl":
        torch.cuda.set_device(rank)
    meeting = f"file://{directory}/meeting"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=RANKS, timeout=timedelta(minutes=2))
    found = Found({})
    try:
        checks(rank, found, COMPILED if compiled else SHARINGS | (OFFLOADED if backend == "nccl" else {}))
    finally:
        (Path(directory) / f"found-{rank}.json").write_text(json.dumps(found.values))
        dist.destroy_process_group()
