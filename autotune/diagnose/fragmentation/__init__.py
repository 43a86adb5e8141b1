"""Memory that the caching allocator holds in pieces nobody can use, and what may help against it."""
