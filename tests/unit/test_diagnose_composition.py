"""A step of real small models on the CPU, taken apart: every storage once, under the name of what it is."""

import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autotune.diagnose.composition.examiner import CompositionExaminer, take_apart
from autotune.diagnose.composition.operators import dearest
from autotune.diagnose.composition.watching import is_compiled
from autotune.model import MemoryKind, OperatorCost, Peak, Phase
from tests.unit.stepped import HELD, Stepped

WIDTH, ROWS, WORDS, BLOCKS = 64, 256, 500, 3
FLOAT = 4


class Tied(nn.Module):
    """Embedding and output share their weight; one buffer is a view of another."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS))
        self.out = nn.Linear(WIDTH, WORDS, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("table", torch.ones(1000, 30))
        self.register_buffer("part", self.table[:500])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embed(tokens)
        for block in self.h:
            x = x + block(x)
        return self.out(x)  # type: ignore[no-any-return]


def tokens() -> torch.Tensor:
    return torch.randint(0, WORDS, (ROWS,))


def loss(model: nn.Module, batch: object) -> torch.Tensor:
    out: torch.Tensor = model(batch)
    return out.pow(2).mean()


def warm(training: Stepped) -> Stepped:
    for _ in range(2):
        training.step()
    return training


def take(training: Stepped) -> Peak:
    return take_apart(warm(training), 2 * HELD)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


@pytest.fixture(scope="module")
def tied() -> Peak:
    torch.manual_seed(5)
    return take(Stepped(Tied(), tokens, loss))


def test_a_tied_weight_counts_once(tied: Peak) -> None:
    parameters = WORDS * WIDTH + BLOCKS * (WIDTH * WIDTH + WIDTH)
    assert tied.bytes_of(MemoryKind.WEIGHTS) == FLOAT * parameters


def test_a_view_of_a_buffer_counts_with_it(tied: Peak) -> None:
    assert tied.bytes_of(MemoryKind.BUFFERS) == FLOAT * 1000 * 30


def test_the_optimizer_keeps_two_moments_and_a_counter_of_each_weight(tied: Peak) -> None:
    weights = tied.bytes_of(MemoryKind.WEIGHTS)
    assert tied.bytes_of(MemoryKind.OPTIMIZER) == 2 * weights + FLOAT * (1 + 2 * BLOCKS)


def test_the_batch_is_told_apart_from_activations(tied: Peak) -> None:
    assert tied.bytes_of(MemoryKind.BATCH) == 8 * ROWS


def test_saved_activations_are_named_by_module_with_blocks_under_one_name(tied: Peak) -> None:
    by_module = {one.name: (one.size_bytes, one.count) for one in tied.modules}
    rows = FLOAT * ROWS * WIDTH
    assert by_module["h.*.0"] == (BLOCKS * rows, BLOCKS)  # inputs of the linear layers
    assert by_module["h.*.1"] == (BLOCKS * rows, BLOCKS)  # results of tanh
    assert by_module["out"] == (rows, 1)
    assert by_module[""] == (FLOAT * ROWS * WORDS, 1)  # of the loss: its input


def test_kinds_sum_to_the_peak_of_the_process(tied: Peak) -> None:
    assert sum(one.size_bytes for one in tied.kinds) == tied.watched_bytes == 2 * HELD
    assert tied.phase is Phase.BACKWARD
    tensors = tied.bytes_of(MemoryKind.WEIGHTS) + tied.bytes_of(MemoryKind.BUFFERS)
    held_before = tensors + tied.bytes_of(MemoryKind.OPTIMIZER) + tied.bytes_of(MemoryKind.BATCH)
    gradients = tied.bytes_of(MemoryKind.WEIGHTS)  # of the step before, let go as this one begins
    assert tied.bytes_of(MemoryKind.PROCESS) == HELD - held_before - gradients


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(WIDTH, WIDTH)
        self.body.requires_grad_(False)
        self.down = nn.Linear(WIDTH, 2, bias=False)
        self.up = nn.Linear(2, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x) + self.up(self.down(x))  # type: ignore[no-any-return]


def test_a_frozen_body_has_weights_and_only_adapters_have_gradients_and_state() -> None:
    training = Stepped(nn.Sequential(Adapted(), Adapted()), lambda: torch.randn(2, WIDTH), loss)
    peak = take(training)
    body, adapters = 2 * (WIDTH * WIDTH + WIDTH), 2 * 2 * 2 * WIDTH
    assert peak.bytes_of(MemoryKind.WEIGHTS) == FLOAT * (body + adapters)
    assert peak.phase is Phase.OPTIMIZER  # few activations: the most is there when gradients and temporaries are
    assert peak.bytes_of(MemoryKind.GRADIENTS) == FLOAT * adapters
    assert peak.bytes_of(MemoryKind.OPTIMIZER) == 2 * FLOAT * adapters + 4 * FLOAT


def test_gradients_that_are_kept_through_the_forward_pass_are_gradients_at_a_peak_there() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    training = Stepped(model, lambda: torch.randn(2000, WIDTH), loss)
    training.optimizer.zero_grad = lambda set_to_none=True: None  # type: ignore[method-assign]
    peak = take(training)
    assert peak.bytes_of(MemoryKind.GRADIENTS) == peak.bytes_of(MemoryKind.WEIGHTS)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False)
        return x


def test_checkpointed_blocks_keep_their_inputs_alone_and_the_rest_is_temporary() -> None:
    def batch() -> torch.Tensor:
        return torch.randn(ROWS, WIDTH, requires_grad=True)

    peak = take(Stepped(Checkpointed(), batch, loss))
    rows = FLOAT * ROWS * WIDTH
    assert peak.bytes_of(MemoryKind.BATCH) == rows
    assert peak.bytes_of(MemoryKind.ACTIVATIONS) == BLOCKS * rows  # inputs of two blocks, and of the loss
    assert peak.bytes_of(MemoryKind.TEMPORARIES) > 0


def test_watching_changes_neither_the_loss_nor_the_weights() -> None:
    def trained(watched: bool) -> list[torch.Tensor]:
        torch.manual_seed(7)
        training = Stepped(Tied(), tokens, loss)
        warm(training)
        if watched:
            take_apart(training, 2 * HELD)
        else:
            training.step()
        training.step()
        return [parameter.detach() for parameter in training.model.parameters()]

    for plain, seen in zip(trained(False), trained(True), strict=True):
        assert torch.equal(plain, seen)


def test_of_a_compiled_model_only_what_has_a_name_is_told() -> None:
    training = Stepped(Tied(), tokens, loss)
    training.compiled = True
    peak = take(training)
    assert peak.bytes_of(MemoryKind.WEIGHTS) > 0 and peak.bytes_of(MemoryKind.OPTIMIZER) > 0
    assert not peak.bytes_of(MemoryKind.ACTIVATIONS) and not peak.modules
    assert any("compiled" in note for note in peak.notes)
    assert sum(one.size_bytes for one in peak.kinds) == peak.watched_bytes


def test_a_model_that_the_user_compiled_is_seen_to_be() -> None:
    model = Tied()
    assert not is_compiled(model)
    model.h[0]._compiled_call_impl = loss  # what compile() sets; it would import the compiler
    assert is_compiled(model)


def test_a_training_that_cannot_be_watched_goes_on_and_says_so() -> None:
    def of_gradient(model: nn.Module, batch: object) -> torch.Tensor:
        slope: torch.Tensor = torch.func.grad(lambda x: x.pow(3).sum())(model(batch))
        return slope.mean()

    training = warm(Stepped(nn.Linear(WIDTH, WIDTH), lambda: torch.randn(ROWS, WIDTH), of_gradient))
    peak = take_apart(training, 2 * HELD)
    assert any("torch.func" in note for note in peak.notes)
    assert sum(one.size_bytes for one in peak.kinds) == peak.watched_bytes
    training.step()


def test_an_error_of_the_users_is_theirs_while_a_step_is_watched_as_well() -> None:
    model = Tied()
    training = warm(Stepped(model, tokens, loss))
    model.out = None  # type: ignore[assignment]
    with pytest.raises(TypeError, match="NoneType"):
        take_apart(training, 2 * HELD)
    assert not model.h[0]._forward_hooks and not model.h[0]._forward_pre_hooks


def test_a_batch_that_numpy_made_is_the_batch() -> None:
    numpy = pytest.importorskip("numpy")

    def batch() -> torch.Tensor:
        return torch.from_numpy(numpy.ones((ROWS, WIDTH), dtype="float32"))

    peak = take(Stepped(nn.Linear(WIDTH, WIDTH), batch, loss))
    assert peak.bytes_of(MemoryKind.BATCH) == FLOAT * ROWS * WIDTH


def test_the_examiner_tells_operators_as_well_and_answers_before_it_ran() -> None:
    examiner = CompositionExaminer()
    assert examiner.facts() == {"peak": None}
    training = Stepped(Tied(), tokens, loss)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        examiner.run(training)
    seen = examiner.facts()["peak"]
    assert isinstance(seen, dict)
    assert {one["name"] for one in seen["operators_by_time"]} >= {"aten::mm"}
    assert all(one["allocated_bytes"] > 0 for one in seen["operators_by_memory"])
    assert len(training.shares) == 6


def test_a_training_that_fails_while_it_is_profiled_is_not_blamed_on_the_profiler() -> None:
    def once(model: nn.Module, batch: object) -> torch.Tensor:
        if len(training.shares) == 5:
            raise RuntimeError("the sixth step fails")
        return loss(model, batch)

    training = Stepped(nn.Linear(WIDTH, WIDTH), lambda: torch.randn(2, WIDTH), once)
    examiner = CompositionExaminer()
    with pytest.raises(RuntimeError, match="sixth"):
        examiner.run(training)
    assert examiner.facts()["peak"] is not None


def test_the_dearest_operators_leave_out_what_costs_nothing() -> None:
    costs = [
        OperatorCost(name="aten::a", calls=1, seconds=0.0, allocated_bytes=5),
        OperatorCost(name="aten::b", calls=1, seconds=2.0, allocated_bytes=0),
        OperatorCost(name="aten::c", calls=1, seconds=3.0, allocated_bytes=9),
    ]
    by_time, by_memory = dearest(costs)
    assert [one.name for one in by_time] == ["aten::c", "aten::b"]
    assert [one.name for one in by_memory] == ["aten::c", "aten::a"]
