"""A training that a section of a diagnosis steps and looks at, in a probe process. What it looks for is the section's."""

import torch

from autotune.apply import Applied
from autotune.diagnose.examiners import MAKERS
from autotune.model import Compile, Phase
from autotune.probe.measure import make_optimizer, place
from autotune.probe.meter import CudaMeter
from autotune.probe.order import Order
from autotune.probe.recorder import Recorder
from autotune.probe.steps import Steps
from autotune.workload.task import Workload


def examine(
    order: Order, workload: Workload, device: torch.device, recorder: Recorder, made: torch.nn.Module | None = None
) -> None:
    """Build the training as a probe does and hand it to the section's examiner, which ``recorder`` keeps.

    ``made``: as in ``run_probe``.

    Raises:
        Unsupported: the settings cannot be applied to this workload.
        BaseException: whatever the user's code raises.
    """
    assert order.section is not None
    examiner = recorder.examiner = MAKERS[order.section](order.steps, order.output)
    meter = recorder.meter
    if isinstance(meter, CudaMeter):
        meter.start(order.device_uuid)
    examiner.begin(device)
    applied = Applied(order.settings, device)
    with recorder.during(Phase.BUILD):
        meter.limit(order.limit_bytes, order.reserve_bytes)
        model = applied.prepare(place(workload.make_model() if made is None else made, device))
        model.train()
        optimizer = make_optimizer(workload, model, applied)
    recorder.batch_size = order.batch_size
    steps = Steps(workload, model, optimizer, applied, recorder, order.batch_size, evaluate_at=0)
    examiner.run(Stepped(order, workload, model, optimizer, device, steps))
    recorder.read_device()


class Stepped:
    """See ``Training``."""

    def __init__(
        self,
        order: Order,
        workload: Workload,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        device: torch.device,
        steps: Steps,
    ) -> None:
        self.workload, self.model, self.optimizer, self.device = workload, model, optimizer, device
        self.batch_size, self.limit_bytes = order.batch_size, order.limit_bytes
        self.cap_bytes = steps.recorder.meter.cap_bytes
        self.compiled = order.settings.compile is not Compile.OFF
        self._steps = steps
        self._number = 0

    def step(self, share: float = 1.0) -> None:
        """A step; nothing of ours may grow with their number."""
        recorder = self._steps.recorder
        self._number += 1
        recorder.begin_pass(self.batch_size)
        self._steps.run(self._number, share)
        recorder.meter.intervals()

    def held_bytes(self) -> int:
        """Now, by the probe's own meter."""
        return self._steps.recorder.meter.allocated() - self._steps.batch_on_device

    def peak_bytes(self) -> int:
        """Over the phases of the last step."""
        return self._steps.recorder.highest_bytes

    def peak_reserved_bytes(self) -> int:
        """The same of what the allocator held."""
        return self._steps.recorder.highest_reserved_bytes

    def batch_bytes(self) -> int:
        """On the device."""
        return self._steps.batch_on_device

    def graphs_kept(self) -> int:
        """As a probe counts them."""
        return self._steps.graphs_kept()

    def phase(self) -> str:
        """The recorder's."""
        return str(self._steps.recorder.phase or "")

    @property
    def batch(self) -> object:
        return self._steps.batch

    def allocated_bytes(self) -> int:
        return self._steps.recorder.meter.allocated()

    def non_pytorch_bytes(self) -> int | None:
        return self._steps.recorder.meter.non_pytorch()

    def retries(self) -> int:
        return self._steps.recorder.meter.retries()
