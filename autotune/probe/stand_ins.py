"""Ranks that are not there: a process group in which one process trains as one of N, to see what N would need of it.

All that lies on this rank is really allocated: DDP's buckets, FSDP2's gathered blocks and shards, ZeRO's share. Only nobody
is talked to: each collective gives what it would if all other ranks held what this one holds. So numbers stay finite, and
a gathered parameter is a shard repeated: what is computed is of the right shape and means nothing.
"""

import io
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

from autotune.model import Parallel

NAME = "autotune_stand_ins"
"""Of the backend, in PyTorch's registry."""


_Group: Any = distributed.ProcessGroup
"""Its methods take their arguments in several forms, of which PyTorch itself uses one."""


class Held:
    """What was exchanged in backward passes, for a step longer than it is needed.

    DDP makes its buckets anew in the second step, and NCCL holds the old ones until its watchdog has looked at their exchange:
    by chance they are there at that step's peak, or gone. Here they are there: a batch has to survive both.
    """

    _MOST = 256
    """More than DDP has buckets: 6 GiB of gradients."""

    def __init__(self) -> None:
        self._tensors: dict[int, list[torch.Tensor]] = {}

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        """Hold these. Where they were exchanged before, a step has gone by: what came before them is let go."""
        key = tensors[0].data_ptr()
        if key in self._tensors:
            while next(iter(self._tensors)) != key:
                self._let_go_of_the_oldest()
            del self._tensors[key]
        self._tensors[key] = list(tensors)
        if len(self._tensors) > self._MOST:
            self._let_go_of_the_oldest()

    def _let_go_of_the_oldest(self) -> None:
        del self._tensors[next(iter(self._tensors))]

    def __len__(self) -> int:
        return len(self._tensors)


class StandIns(_Group):  # type: ignore[misc]
    """Collectives of one rank of ``ranks``; they end at once, take no memory but what ``Held`` says, and move nothing off the
    device.

    PyTorch renamed some of them (2.13): each has both names.
    """

    threads: object = None
    """A process group of gloo that has nothing to do: its threads are there, as in each rank."""

    def __init__(self, rank: int, ranks: int) -> None:
        super().__init__(rank, ranks)
        self._rank, self._ranks = rank, ranks
        self._held = Held()

    def getBackendName(self) -> str:
        return NAME

    @property
    def group_name(self) -> str:
        """Under which PyTorch keeps it; a group that is no backend's is not asked for it otherwise."""
        return str(distributed.distributed_c10d._world.pg_names[self])

    pg_name = group_name

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: object = None) -> Any:
        if tensors[0].is_cuda and torch._C._current_graph_task_id() != -1:  # gradients; gloo holds none
            self._held.add(tensors)
        return _done(tensors)

    allreduce_coalesced = allreduce
    reduce = allreduce

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: object = None) -> Any:
        return _done(tensors)

    def send(self, tensors: Sequence[torch.Tensor], to: int, tag: int = 0) -> Any:
        return _done(tensors)

    def recv(self, tensors: Sequence[torch.Tensor], sender: int, tag: int = 0) -> Any:
        with torch.no_grad():
            for tensor in tensors:
                tensor.zero_()
        return _done(tensors)

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> Any:
        return self.recv(tensors, 0, tag)

    def barrier(self, opts: object = None) -> Any:
        return _done([])

    monitored_barrier = barrier

    def allgather(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: object = None
    ) -> Any:
        for each, mine in zip(outputs, inputs, strict=True):
            for output in each:
                _copy(output, mine)
        return _done([one for each in outputs for one in each])

    gather = allgather
    """Only the root gives room for what comes; for the others there is nothing to do."""

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[torch.Tensor]], inputs: Sequence[torch.Tensor], opts: object = None
    ) -> Any:
        for each in outputs:
            for output, mine in zip(each, inputs, strict=True):
                _copy(output, mine)
        return _done([one for each in outputs for one in each])

    def all_gather_single(self, output: torch.Tensor, mine: torch.Tensor, opts: object = None) -> Any:
        parts = output.view(self._ranks, -1)
        row = mine.reshape(1, -1)
        _copy(parts[self._rank : self._rank + 1], row)
        for others in (parts[: self._rank], parts[self._rank + 1 :]):  # ``mine`` may lie in its place already
            _copy(others, row)
        return _done([output])

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: object = None
    ) -> Any:
        for output, mine in zip(outputs, inputs, strict=True):
            self.all_gather_single(output, mine)
        return _done(outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: object = None
    ) -> Any:
        for output, parts in zip(outputs, inputs, strict=True):
            _copy(output, parts[self._rank])
        return _done(outputs)

    def reduce_scatter_single(self, output: torch.Tensor, whole: torch.Tensor, opts: object = None) -> Any:
        _copy(output.view(-1), whole.view(self._ranks, -1)[self._rank])
        return _done([output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: object = None
    ) -> Any:
        for output, whole in zip(outputs, inputs, strict=True):
            self.reduce_scatter_single(output, whole)
        return _done(outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def scatter(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[Sequence[torch.Tensor]], opts: object = None
    ) -> Any:
        if inputs:  # of the root only
            return self.reduce_scatter(outputs, inputs, opts)
        return self.recv(outputs, 0)

    def alltoall(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: object = None) -> Any:
        for output, mine in zip(outputs, inputs, strict=True):
            _repeat(output, mine)
        return _done(outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        mine: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: object = None,
    ) -> Any:
        _repeat(output, mine)
        return _done([output])

    alltoall_base = all_to_all_single


def join(rank: int, ranks: int, parallel: Parallel, device: torch.device) -> None:
    """Make this process one of so many, for ``torch.distributed`` and all that builds on it.

    ``parallel``: how they are to train together; what else the user's code brings in of it is looked for as well.
    """
    if parallel is Parallel.ZERO or "torch.distributed.optim.zero_redundancy_optimizer" in sys.modules:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        ZeroRedundancyOptimizer.consolidate_state_dict = _consolidate  # type: ignore[method-assign]
        ZeroRedundancyOptimizer.state_dict = _gathered_state  # type: ignore[method-assign]
    if device.type == "cpu" and distributed.is_gloo_available():
        # The limit on the CPU counts the stacks of threads as well, and gloo has some: 24 MiB, and 8 more once it exchanges.
        StandIns.threads = distributed.ProcessGroupGloo(distributed.HashStore(), 0, 1, timedelta(minutes=1))  # type: ignore[attr-defined]
    distributed.Backend.register_backend(NAME, _make, devices=["cpu", "cuda"])
    distributed.init_process_group(NAME, store=distributed.HashStore(), rank=rank, world_size=ranks)  # type: ignore[attr-defined]


def _make(store: object, rank: int, ranks: int, timeout: object) -> StandIns:
    return StandIns(rank, ranks)


def _consolidate(self: Any, to: int = 0) -> None:
    """What ``ZeroRedundancyOptimizer`` does when it gathers its state: the share of each other rank comes as bytes on the
    device, is read there, and goes to the host. Nobody sends one: this rank's own stands for each.

    On the CPU, where the host's memory is what counts, it sends its own as well, as all but one rank do: PyTorch makes a
    list of numbers of the bytes, which takes more than all else.
    """
    device = self._default_device
    if device.type == "cpu":
        from torch.distributed.optim.zero_redundancy_optimizer import _broadcast_object  # type: ignore[attr-defined]

        _broadcast_object(self.optim.state_dict(), src_rank=self.global_rank, group=self.process_group, device=device)
    self._all_state_dicts = []
    for rank in range(self.world_size):
        share = self.optim.state_dict()
        if rank != self.rank:
            written = io.BytesIO()
            torch.save(share, written)
            sent = torch.frombuffer(written.getbuffer(), dtype=torch.uint8).to(device)
            received = io.BytesIO(sent.cpu().numpy())  # type: ignore[arg-type]  # its buffer: no list of it is made
            share = torch.load(received, map_location=device, weights_only=True)
        self._all_state_dicts.append(_on_host(share))


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("cpu")
    return {name: _on_host(each) for name, each in value.items()} if isinstance(value, dict) else value


def _gathered_state(self: Any) -> dict[str, Any]:
    """The shares as they are: put together they would have to be those of all ranks."""
    return {"shares": self._all_state_dicts}


def _done(tensors: Sequence[torch.Tensor]) -> Any:
    """Work that is over."""
    future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
    future.set_result(list(tensors))
    return _create_work_from_future(future)


def _copy(there: torch.Tensor, mine: torch.Tensor) -> None:
    if there.data_ptr() != mine.data_ptr():
        with torch.no_grad():
            there.copy_(mine)


def _repeat(there: torch.Tensor, mine: torch.Tensor) -> None:
    """Fill as much as there is of both; the rest, which would come from others, with zeros."""
    with torch.no_grad():
        flat, given = there.view(-1), mine.reshape(-1)
        both = min(flat.numel(), given.numel())
        flat[:both].copy_(given[:both])
        flat[both:].zero_()
