"""Looks at a machine while it works: devices, who uses them, guarded trainings, searches. Changes nothing, loads no torch.

``collect`` looks, ``snapshot`` has the nouns, ``view``, ``document`` and ``metrics`` say what was seen, ``outlets`` hands
metrics on.
"""
