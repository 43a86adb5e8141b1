"""accelerate's ``find_executable_batch_size`` on a workload file, in a process of its own. Prints one JSON line.

As its documentation shows, the decorated function makes everything anew: model, optimizer and batches. It is plain
PyTorch, so that what is trained is what the other finders train.
"""

from accelerate.utils import find_executable_batch_size

from benchmarks.comparison.child import STEPS, Training, Trials, load, parser, prepare, to_device


def main() -> None:
    """Find and print."""
    options = parser(__doc__)
    options.add_argument("--start", type=int, default=1024, help="starting_batch_size")
    asked = options.parse_args()
    workload = load(asked.workload)
    prepare(asked.device, asked.cap_bytes)
    trials = Trials(asked.device)

    def train(batch_size: int) -> int:
        trials.begin(batch_size)
        training = Training(workload, asked.device, asked.precision)
        for _ in range(STEPS):
            batch = to_device(workload.make_batch(batch_size), asked.device)  # the former one lives until this is there
            training.step(batch)
        trials.end()
        return batch_size

    trials.answer(find_executable_batch_size(train, starting_batch_size=asked.start)())


if __name__ == "__main__":
    main()
