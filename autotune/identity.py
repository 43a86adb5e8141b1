"""What makes two searches one question, so that one goes on where the other ended; and which version asks it."""

from autotune.knobs import OF_RANKS
from autotune.model import Machine, Parallel, Plan, WorkloadInfo, digest


def search_key(plan: Plan, workload: WorkloadInfo, machine: Machine) -> str:
    """Equal keys ask the same question of the same workload on the same machine."""
    settings = plan.settings
    return digest(
        {
            "workload": workload.fingerprint,
            "machine": machine.fingerprint,
            "settings": [settings.precision, settings.allocator, settings.accumulate, *plan.other_allocators],
            "memory_limit": plan.memory_limit_bytes,
            "bounds": [plan.multiple_of, plan.start_batch, plan.max_batch],
            "timeout": plan.timeout_s,
            "seed": plan.seed,
            "recommend": plan.recommend,
            # Older versions let a failing evaluation lower the training batch: that question was another one.
            **({"evaluation": ["apart", plan.eval_batch]} if workload.evaluates else {}),
            **({"length_bucket": plan.length_bucket} if plan.length_bucket is not None else {}),
            **({"ranks": plan.ranks} if plan.ranks > 1 else {}),
            **({"predicted": plan.communicators_bytes} if plan.predicted else {}),
            # how ranks train together, where autotune joins them
            **({} if settings.parallel is Parallel.DEFAULT else {"parallel": [knob.of(settings) for knob in OF_RANKS]}),
            **_tuned(plan),
        }
    )


def _tuned(plan: Plan) -> dict[str, object]:
    """What a search of settings was asked for beside the batch; empty for one of the batch alone."""
    if not plan.space and plan.effective_batch is None:
        return {}
    return {
        "space": [[choice.knob, *choice.values] for choice in plan.space],
        "objective": plan.objective,
        "effective": [plan.effective_batch, plan.world],
        "trials": plan.trials,
    }


def version() -> str:
    """autotune's own version."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("autotune-torch")
    except PackageNotFoundError:  # run from a bare checkout
        return "0+checkout"
