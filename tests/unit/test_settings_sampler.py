"""The sampler proposes only what is left to try, and the same for the same history and seed."""

from autotune.knobs import Space
from autotune.model import Precision, Settings
from autotune.search.settings.sampler import Told, proposals
from tests.unit.planted_settings import space_of

SPACE = space_of(allow=("precision", "compile", "optimizer", "memory_format", "cudnn_benchmark"))
BEST = Settings(precision=Precision.BF16, cudnn_benchmark=True)


def told(space: Space = SPACE) -> list[Told]:
    """Values by how near they are to the best settings."""
    known = [settings for settings in space.all()][::7]
    return [Told(settings, -float(len(settings.changes(BEST))), feasible=True) for settings in known]


def test_the_same_seed_and_measurements_give_the_same_proposals() -> None:
    first, again, other = (list(proposals(SPACE, told(), seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_what_was_measured_or_is_refused_is_not_proposed() -> None:
    found = list(proposals(SPACE, told(), 1))
    assert found
    assert not {one.settings for one in told()}.intersection(found)
    assert len(set(found)) == len(found)
    assert not any(SPACE.refuses(settings) for settings in found)


def test_proposals_lean_towards_what_was_good() -> None:
    found = list(proposals(SPACE, told(), 3))[:8]
    everything = list(SPACE.all())
    assert sum(len(s.changes(BEST)) for s in found) / len(found) < 0.9 * sum(
        len(s.changes(BEST)) for s in everything
    ) / len(everything)


def test_infeasible_settings_are_not_what_proposals_lean_towards() -> None:
    known = told()
    best = max(one.value for one in known)
    bad = [Told(one.settings, one.value, feasible=one.value < best) for one in known]
    assert list(proposals(SPACE, bad, 1)) != list(proposals(SPACE, known, 1))


def test_a_space_with_nothing_to_choose_from_has_no_proposals() -> None:
    assert list(proposals(space_of(allow=("none",)), [], 1)) == []


def test_the_users_own_settings_may_lie_outside_what_is_demanded() -> None:
    space = space_of(fix=("precision=fp16",), allow=("compile", "optimizer"))
    found = list(proposals(space, [Told(Settings(), 1.0, feasible=True)], 1))
    assert found and all(settings.precision is Precision.FP16 for settings in found)
