"""The error by which settings say that they cannot be applied to this model on this device."""


class Unsupported(RuntimeError):
    """Raised by every part of this room; the message says what stands in the way. Try other settings."""
