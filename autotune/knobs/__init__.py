"""What of the settings may be changed, to which values, and which of them go together. Pure: no torch, nothing measured.

A knob is one field of ``Settings``. A ``Space`` is what a search may combine for one workload on one device; what falls
away there is told with the reason. Nothing here decides which combination is best.
"""

from autotune.knobs.choosing import choices
from autotune.knobs.knob import Cost, Knob, Place
from autotune.knobs.registry import KNOBS, OF_RANKS, TARGETS, knob_of
from autotune.knobs.rules import RULES, Rule
from autotune.knobs.space import Left, Space, cost_of, make_space, space_of
from autotune.knobs.texts import Value
from autotune.knobs.told import told
from autotune.knobs.words import in_words

__all__ = [
    "KNOBS",
    "OF_RANKS",
    "RULES",
    "TARGETS",
    "Cost",
    "Knob",
    "Left",
    "Place",
    "Rule",
    "Space",
    "Value",
    "choices",
    "cost_of",
    "in_words",
    "knob_of",
    "make_space",
    "space_of",
    "told",
]
