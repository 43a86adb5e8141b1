"""A recommendation in the words of other frameworks. Pure: neither torch nor any of the frameworks is imported.

What a target has no words for is never dropped: every such setting comes back as a note that says what to write instead.
"""

from autotune.export.nouns import Exported, Note, Recommendation, Target
from autotune.export.targets import export

__all__ = ["Exported", "Note", "Recommendation", "Target", "export"]
