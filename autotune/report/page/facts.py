"""What was searched, on what, and within which budget: labels and values."""

from collections.abc import Mapping, Sequence

from autotune.model import ProbeResult, SearchRecord
from autotune.report.columns import instant_words
from autotune.report.ranks import together_words
from autotune.report.setting_words import given_words
from autotune.report.words import format_count
from autotune.units import format_bytes, format_seconds


def facts(record: SearchRecord, probes: Sequence[ProbeResult]) -> Mapping[str, Mapping[str, str]]:
    """Title -> label -> value; those without a value are left out."""
    workload, machine, budget = record.workload, record.machine, record.budget
    took = sum(probe.seconds for probe in probes)  # a search that was resumed ended long after it began
    failed = sum(not probe.fits for probe in probes)
    groups: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
        (
            "Search",
            (
                ("id", record.id),
                ("confirms", record.based_on or ""),
                ("state", record.state.value.replace("_", " ")),
                ("ended with", record.message),
                ("began", instant_words(record.created)),
                ("ended", instant_words(record.finished) if record.finished else ""),
                ("probes took", format_seconds(took) if probes else ""),
                ("probes", f"{len(probes)}, {failed or 'none'} of them failed" if probes else "0"),
                ("your settings", given_words(record.plan.settings)),
                ("ranks", f"{together} in each probe" if (together := together_words(record.plan)) else ""),
                ("seed", str(record.plan.seed)),
                ("autotune", record.version),
            ),
        ),
        (
            "Workload",
            (
                ("model", workload.ref),
                ("parameters", format_count(workload.parameters)),
                ("optimizer", workload.optimizer),
                ("batch", workload.batch),
                ("fingerprint", workload.fingerprint),
            ),
        ),
        (
            "Machine",
            (
                ("device", f"{machine.device_name} ({machine.device})"),
                ("UUID", machine.device_uuid),
                ("UUIDs of the other ranks", ", ".join(machine.peers)),
                ("memory", format_bytes(machine.capacity_bytes)),
                ("driver", machine.driver_version),
                ("CUDA", machine.cuda_version),
                ("PyTorch", machine.torch_version),
                ("Python", machine.python_version),
                ("platform", machine.platform),
            ),
        ),
        (
            "Memory budget",
            (
                ("budget", format_bytes(budget.limit_bytes)),
                ("is that of", f"each of the {record.plan.ranks} ranks" if record.plan.ranks > 1 else ""),
                ("set by", budget.source),
                ("device has", format_bytes(budget.capacity_bytes)),
                ("held by others", format_bytes(budget.others_bytes) if budget.others_bytes else ""),
                ("headroom", format_bytes(budget.headroom_bytes) if budget.headroom_bytes else ""),
            ),
        ),
    )
    return {title: {label: value for label, value in rows if value} for title, rows in groups}
