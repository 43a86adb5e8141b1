"""Settings -> how a step is really run. The probe and the user's training both go through here: what was probed is
what is trained.

It never decides anything: settings come in, a prepared model comes out, or ``Unsupported`` says why not. (The
allocator's environment must be set before the device starts, so it is a fact of the settings: ``Settings.environment``.)
"""

from autotune.apply.applied import Applied
from autotune.apply.blocks import find_blocks, own_switch
from autotune.apply.parallel import parallelise
from autotune.apply.ranks import leave_group
from autotune.apply.unsupported import Unsupported

__all__ = ["Applied", "Unsupported", "find_blocks", "leave_group", "own_switch", "parallelise"]
