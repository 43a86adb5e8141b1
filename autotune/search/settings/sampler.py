"""Optuna's tree-structured Parzen estimator over the knobs, by ask and tell. The only file that knows Optuna.

The study lives in memory and is rebuilt from what was measured whenever it is asked: nothing else has to be kept to resume.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from autotune.knobs import Space
from autotune.model import Settings

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_RANDOM_TRIALS = 4
"""Proposals made at random as long as fewer settings than this were measured."""
_PROPOSALS = 32
"""As many are looked at; most of what is worth trying was tried before the sampler is asked."""


@dataclass(frozen=True, slots=True)
class Told:
    """Settings that were measured."""

    settings: Settings
    value: float
    """The goal's logarithm; for settings that cannot be had a number no better than the worst."""
    feasible: bool


def proposals(space: Space, told: Sequence[Told], seed: int) -> Iterator[Settings]:
    """Settings that the sampler proposes, without those that the space refuses or that were measured.

    Args:
        space: what may be combined.
        told: everything measured, in the order it was.
        seed: the same seed and measurements give the same proposals.
    """
    import optuna

    values = {knob: space.values(knob) for knob in space.knobs}
    distributions: dict[str, BaseDistribution] = {
        knob: optuna.distributions.CategoricalDistribution(tuple(range(len(of)))) for knob, of in values.items()
    }
    if not distributions:
        return
    shown = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it tells of each study and trial on stderr
    try:
        study = _study(seed + len(told))
        for one in told:
            params = _indices(one.settings, values)
            if params is not None:
                study.add_trial(
                    optuna.trial.create_trial(
                        params=params,
                        distributions=distributions,
                        value=one.value,
                        constraints={"infeasible": -1.0 if one.feasible else 1.0},
                    )
                )
        asked = [study.ask(distributions).params for _ in range(_PROPOSALS)]
    finally:
        optuna.logging.set_verbosity(shown)
    seen = {replace(one.settings, accumulate=space.base.accumulate) for one in told}
    for params in asked:
        changed: dict[str, Any] = {knob: values[knob][index] for knob, index in params.items()}
        settings = replace(space.start, **changed)
        if settings not in seen and not space.refuses(settings):
            seen.add(settings)
            yield settings


def _study(seed: int) -> Any:
    """An empty study; typed loosely, as Optuna's own types of samplers differ between releases."""
    import optuna

    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=_RANDOM_TRIALS)
    return optuna.create_study(direction="maximize", sampler=sampler)


def _indices(settings: Settings, values: Mapping[str, Sequence[object]]) -> dict[str, int] | None:
    """Where the settings' values stand among those in question; None if one is not among them (the user's own, under --fix)."""
    found: dict[str, int] = {}
    for knob, of in values.items():
        value = getattr(settings, knob)
        if value not in of:
            return None
        found[knob] = of.index(value)
    return found
