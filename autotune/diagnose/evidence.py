"""Which noun each section's process answers with: the parent validates the answer against it. No torch."""

from autotune.model import CompositionEvidence, FragmentEvidence, LeakEvidence, Section, Snapshots

EVIDENCE: dict[Section, type] = {
    Section.LEAKS: LeakEvidence,
    Section.COMPOSITION: CompositionEvidence,
    Section.FRAGMENTATION: FragmentEvidence,
    Section.SNAPSHOT: Snapshots,
}
