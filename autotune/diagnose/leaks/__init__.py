"""Memory that grows from step to step: watched in the child, judged in the parent."""
