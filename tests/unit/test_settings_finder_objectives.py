"""What settings are chosen for besides speed: the largest batch, or the least memory at a wanted one."""

from autotune.model import Checkpointing, Objective, Reason, Settings
from autotune.search.apart import plain
from autotune.units import MIB
from tests.unit.planted_settings import PlantedMachine, space_of
from tests.unit.planted_settings_searches import random_machine, search, searched


def test_for_the_batch_the_settings_that_hold_the_most_are_found_and_their_limit() -> None:
    for seed in range(6):
        machine = random_machine(seed)
        answer, _ = searched(machine, objective=Objective.BATCH)
        assert answer.settings is not None
        most = max(machine.limit(settings) for settings in machine.valid())
        assert answer.max_batch >= 0.95 * most
        assert answer.max_batch == machine.limit(plain(answer.settings))
        assert answer.refuted_at == answer.max_batch + 1


def test_for_the_batch_the_users_own_settings_stay_where_nothing_holds_more() -> None:
    answer, _ = searched(
        PlantedMachine(space=space_of(), speed={("precision", "bf16"): 1.0}), objective=Objective.BATCH
    )
    assert answer.settings == Settings()
    assert answer.max_batch == 39


def test_for_memory_the_least_at_the_wanted_batch_is_found() -> None:
    for seed in range(6):
        machine = random_machine(seed)
        answer, history = searched(machine, objective=Objective.MEMORY, batch={"max_batch": 8})
        assert answer.settings is not None and answer.recommended_batch == answer.max_batch == 8
        least = min(machine.held_bytes(settings, 8) for settings in machine.valid())
        assert machine.held_bytes(answer.settings, 8) <= 1.05 * least
        assert {p.batch_size for p in history} == {8}


def test_for_memory_without_a_wanted_batch_the_users_own_is_taken() -> None:
    machine = random_machine(1)
    answer, history = searched(machine, objective=Objective.MEMORY)
    own = [p.batch_size for p in history if p.reason is Reason.BASELINE]
    assert answer.recommended_batch == own[0]


def test_a_wanted_batch_that_does_not_fit_is_reached_by_what_saves_memory() -> None:
    machine = PlantedMachine(space=space_of(), memory={("checkpointing", "own"): -1.0}, sample_bytes=1000 * MIB)
    assert machine.limit(Settings()) == 39
    answer, _ = searched(machine, objective=Objective.MEMORY, batch={"max_batch": 64})
    assert answer.settings is not None
    assert (answer.recommended_batch, answer.settings.checkpointing) == (64, Checkpointing.OWN)


def test_a_wanted_batch_that_nothing_makes_fit_has_no_answer() -> None:
    stop, _ = search(PlantedMachine(space=space_of()), objective=Objective.MEMORY, batch={"max_batch": 64})
    assert stop.answer is None and "64" in stop.reason
