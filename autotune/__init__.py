"""autotune: the largest safe training batch of a PyTorch model, by isolated probes of your own code."""
