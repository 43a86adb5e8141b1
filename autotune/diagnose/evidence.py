"""Which noun each section's process answers with: the parent validates the answer against it. No torch."""

from autotune.model import LeakEvidence, Section

EVIDENCE: dict[Section, type] = {
    Section.LEAKS: LeakEvidence,
}
