"""The deaths that are injected: who dies, at which phase of a probe or step of the tool. Drawn by the seed: which of the
processes that get there is hit, and when."""

from random import Random

from tests.faults.injection import Injection
from tests.faults.striking import Fault

SIGNALS = {"kill": -9, "hup": -1, "term": 143, "int": 130, "int int": 130}
"""What the tool exits with."""
_STOPS = {"term": 5, "int": 5, "int int": 4, "hup": 3}
"""In how many phases, and so on. It is killed in all of them."""
GUARDIAN_DIED = 5
_TORN = -25  # SIGXFSZ

PHASES: dict[str, tuple[tuple[int, int], ...]] = {
    "load": ((1, 1),),
    "build": ((1, 1), (2, 1), (4, 1), (6, 1)),
    "data": ((1, 1), (2, 1), (3, 1), (4, 2), (6, 3)),
    "forward": ((1, 1), (1, 3), (2, 1), (3, 2), (4, 1), (5, 4)),
    "backward": ((1, 2), (2, 1), (3, 5)),
    "optimizer": ((1, 1), (2, 3), (3, 2)),
    "evaluate": ((1, 1),),
    "checkpoint": ((1, 1),),
    "answer": ((1, 1), (2, 1), (3, 1), (6, 1)),
    "exit": ((1, 1), (2, 1), (5, 1), (6, 1)),
}
"""Phase of the planted workload -> which process may be hit there at which visit.

The first process to build describes the workload; then five probes train on 1, 4, 2, 3 and 2 samples, of which the second
and fourth run out of memory in their first forward pass, and the last one evaluates and takes a checkpoint.
"""

STEPS: dict[str, int] = {
    "guardian: before": 1,
    "guardian: after": 1,
    "preload: after": 1,
    "open: before": 1,
    "open: after": 1,
    "describe: before": 1,
    "describe: after": 1,
    "begin: before": 1,
    "begin: after": 1,
    "send: before": 6,
    "send: after": 6,
    "report: after": 6,
    "add: before": 5,
    "uncommitted": 7,
    "committed": 7,
    "add: after": 5,
    "finish: before": 1,
    "finish: after": 1,
    "close: before": 1,
    "close: after": 1,
    "keep: before": 1,
    "document: begin": 1,
    "document: written": 1,
    "document: on disk": 1,
    "keep: after": 1,
}
"""Step of the tool -> how often it comes in one search, at least."""

INTERRUPTED = Fault(point="add: after", visit=2)


def probe_deaths(random: Random) -> list[Injection]:
    """At every phase of a probe: tool, guardian, zygote and the probe itself killed; the tool stopped in every way."""
    found = []
    hit = [(phase, "kill") for phase in PHASES]
    hit += [(phase, act) for act, times in _STOPS.items() for phase in random.sample(list(PHASES), times)]
    for phase, act in hit:
        victim = "group" if act.startswith("int") else "tool"
        process, visit = random.choice(PHASES[phase])
        fault = Fault(point=phase, process=process, visit=visit, act=act, victim=victim)
        found.append(Injection(group=f"{act} the tool in a probe", fault=fault, codes=frozenset({SIGNALS[act]})))
    for phase, places in PHASES.items():
        process, visit = random.choice(places)
        fault = Fault(point=phase, process=process, visit=visit, victim="guardian")
        found.append(Injection(group="kill the guardian", fault=fault, codes=frozenset({GUARDIAN_DIED})))
        process, visit = random.choice(places)
        fault = Fault(point=phase, process=process, visit=visit, victim="self")
        found.append(Injection(group="kill the probe", fault=fault, codes=frozenset({0})))
    for phase in ("build", "forward", "exit"):
        process, visit = random.choice(PHASES[phase])
        fault = Fault(point=phase, process=process, visit=visit, victim="zygote")
        found.append(Injection(group="kill the zygote", fault=fault, codes=frozenset({0})))
    return found


def tool_deaths(random: Random) -> list[Injection]:
    """Around everything the tool does: killed, and stopped; its guardian killed."""
    found = []
    hit = [(step, "kill") for step in STEPS]
    hit += [(step, act) for act in ("term", "int", "int int") for step in random.sample(list(STEPS), 3)]
    for step, act in hit:
        fault = Fault(point=step, visit=random.randint(1, STEPS[step]), act=act)
        group = f"{act} the tool at a step of its own"
        found.append(Injection(group=group, fault=fault, codes=frozenset({SIGNALS[act]})))
    for step in ("send: before", "report: after", "add: before", "begin: after"):
        fault = Fault(point=step, visit=random.randint(1, min(4, STEPS[step])), victim="guardian")
        found.append(Injection(group="kill the guardian", fault=fault, codes=frozenset({GUARDIAN_DIED})))
    return found


def torn_writes(random: Random) -> list[Injection]:
    """Killed by the kernel in the middle of a write: to the ledger's log, to the ledger, to the recommendation."""
    faults = [Fault(point="uncommitted", visit=visit, act="torn log") for visit in random.sample(range(1, 8), 3)]
    faults += [Fault(point="committed", visit=visit, act="torn ledger") for visit in random.sample(range(2, 7), 2)]
    faults += [Fault(point="document: begin", act="torn document")]
    return [Injection(group="killed in mid-write", fault=fault, codes=frozenset({_TORN})) for fault in faults]


def second_deaths(random: Random) -> list[Injection]:
    """A search that goes on, or confirms, is hit as well."""
    found = []
    for step in ("reopen: before", "uncommitted", "reopen: after", "add: after"):
        for act in ("kill", "term"):
            fault = Fault(point=step, act=act)
            codes = frozenset({SIGNALS[act]})
            found.append(
                Injection(group=f"{act} a resumed search", fault=fault, codes=codes, fresh=False, after=INTERRUPTED)
            )
    for step in ("begin: after", "add: before", "add: after", "finish: after"):
        act = random.choice(["kill", "int"])
        found.append(
            Injection(
                group="stop a confirmation",
                fault=Fault(point=step, act=act),
                codes=frozenset({SIGNALS[act]}),
                fresh=False,
            )
        )
    return found


def deaths_afresh(random: Random) -> list[Injection]:
    """In the probe that certifies, which on the CPU is a fresh interpreter."""
    found = []
    for phase, process in (("load", 2), ("build", 6), ("forward", 5), ("answer", 6)):
        for victim, code in (("tool", -9), ("guardian", GUARDIAN_DIED), ("self", 0)):
            if random.random() < 0.5 or phase == "load":
                fault = Fault(point=phase, process=process, victim=victim)
                found.append(Injection(group="kill in a fresh interpreter", fault=fault, codes=frozenset({code})))
    return found


def deaths_ahead(random: Random) -> list[Injection]:
    """While the zygote makes the model ahead of the probes, as on CUDA it does, beside the process that describes."""
    found = []
    for victim, code in (("tool", -9), ("guardian", GUARDIAN_DIED), ("self", 0)):
        fault = Fault(point="build", process=random.choice([1, 2]), victim=victim)
        found.append(Injection(group="kill while the model is made ahead", fault=fault, codes=frozenset({code})))
    return found


RANKS = ("--ranks", "2")
_RANKS_PHASES = ("data", "forward", "backward", "optimizer", "checkpoint", "answer")


def deaths_with_ranks(random: Random) -> list[Injection]:
    """While two ranks train together, each a process of its own: tool, guardian and one of the ranks.

    The one that gets there second is hit as well as the first: the other may wait for it in a collective then.
    """
    found = []
    acts = [("tool", "kill"), ("tool", "term"), ("group", "int"), ("guardian", "kill"), ("self", "kill")]
    for phase, (victim, act) in zip(random.sample(_RANKS_PHASES, len(acts)), acts, strict=True):
        code = {"guardian": GUARDIAN_DIED, "self": 0}.get(victim, SIGNALS[act])
        # The first process that trains describes the workload; two and three are the ranks of the first probe.
        fault = Fault(
            point=phase, process=1 if phase == "checkpoint" else random.choice([2, 3]), act=act, victim=victim
        )
        found.append(Injection(group=f"{act} the {victim} with two ranks", fault=fault, codes=frozenset({code})))
    return found
