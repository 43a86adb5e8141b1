"""What is installed and what works here."""

from autotune.errors import AutotuneError
from autotune.ledger import place_of
from autotune.model import Diagnosis, Fact, Health


def doctor(storage: str | None) -> Diagnosis:
    """See ``api.doctor``."""
    from autotune.probe import doctor as doctors
    from autotune.probe import installation, nvml

    cards = nvml.cards()
    with doctors.standing_back(cards) as (busy, locks):
        seen = doctors.look_by_torch(busy)
    ledger = ledger_fact(storage)
    loads = not isinstance(seen, str)
    computes = not isinstance(seen, str) and (seen.cpu_computes or any(one.computes for one in seen.devices))
    if isinstance(seen, str):
        broken = Fact(
            section="PyTorch",
            name="torch",
            value=f"cannot be loaded: {seen}",
            health=Health.TROUBLE,
            hint="pip install --force-reinstall torch, and try: python -c 'import torch'",
        )
    facts = (
        *installation.versions(),
        *installation.collisions(),
        *((broken,) if isinstance(seen, str) else seen.facts),
        *doctors.devices(seen, cards),
        *locks,
        *doctors.allocator(),
        *doctors.environment(),
        *doctors.limits(),
        ledger,
        *installation.optional(),
    )
    return Diagnosis(facts=facts, usable=loads and computes and ledger.health is not Health.TROUBLE)


def ledger_fact(storage: str | None) -> Fact:
    from autotune.storage.look import look

    try:
        found = look(place_of(storage))
    except AutotuneError as error:
        return Fact(section="ledger", name="place", value=error.message, health=Health.TROUBLE, hint=error.hint)
    if found.schema is None:
        return Fact(section="ledger", name="place", value=f"{found.label}: none yet; the first search makes it")
    kept = (
        "of an older autotune; the next search brings it up to date"
        if found.searches is None
        else f"{found.searches} searches"
    )
    return Fact(section="ledger", name="place", value=f"{found.label}: schema {found.schema}, {kept}")
