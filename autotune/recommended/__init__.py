"""autotune.json read again: from disk, held against what is here, and back to the plan it came from. Without torch."""
