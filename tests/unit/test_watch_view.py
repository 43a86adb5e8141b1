"""What the terminal shows of a snapshot."""

from dataclasses import replace

from autotune.model import Health
from autotune.watch.view import lines
from tests.planted_watch import SNAPSHOT

SHOWN = """\
box  2026-11-30 10:20:31 UTC  driver 580.1
device  name                 UUID         memory                           used   total  busy  temp        power
gpu0    card a               GPU-aaaa-24  [###############.....]  75%    18 GiB  24 GiB   87%  61 C  312 / 700 W
gpu1    card b               GPU-bbbb-8   [????????????????????]              -       -     -     -            -
gpu2.0  card c, an instance  MIG-cccc-10  [####################]  98%  9.75 GiB  10 GiB     -     -            -
host    memory               -            [....................]   0%       0 B  64 GiB     -     -            -

tenants
  device   pid  user  memory  command
  gpu0      12  -          -  not visible from here
  gpu0    4711  anna  18 GiB  python train.py --token ***

guarded trainings
  device   pid  user  training        step  a step    peak  headroom  OOMs absorbed  mind
  gpu0    4711  anna  train.py       1,200  250 ms  19 GiB     3 GiB              2  5 allocator retries; 1 emergency checkpoint
  gpu0    4711  anna  train.py       1,200  250 ms  23 GiB    -1 GiB              2  LEAK 2 MiB a step; above its limit; 5 allocator retries
  host       5  bob   lit.py rank 3  1,200       -  19 GiB     3 GiB              0  silent for 3 min 0 s

probes running
  device  by
  gpu0    bob (pid 99, `autotune search model.py`, since 10:20:31 UTC)

searches running
  id            since (UTC)          probes  model                 device  by
  3ca48fb993e7  2026-11-30 10:18:31       7  examples/tiny_gpt.py  card a  process 99 on box

- 1 file tells nothing of a training: it is no JSON object (in /tmp/x)
"""


def test_everything_that_was_seen_is_shown_in_aligned_columns() -> None:
    assert "\n".join(line.text for line in lines(SNAPSHOT)) + "\n" == SHOWN


def test_a_search_that_predicts_says_so() -> None:
    predicts = replace(SNAPSHOT.searches[0], predicted=True)
    assert any(
        "  examples/tiny_gpt.py, predicted  card a" in line.text
        for line in lines(replace(SNAPSHOT, searches=(predicts,)))
    )


def test_what_is_to_be_minded_stands_out() -> None:
    healths = {line.text.split()[0]: line.health for line in lines(SNAPSHOT) if not line.heading and line.text}
    assert healths["gpu2.0"] is Health.NOTE, "nearly full"
    trainings = [line.health for line in lines(SNAPSHOT) if "train.py   " in line.text or "lit.py" in line.text]
    assert trainings == [Health.NOTE, Health.TROUBLE, Health.NOTE]


def test_a_hot_device_stands_out_and_a_quiet_training_does_not() -> None:
    hot = replace(SNAPSHOT.devices[0], temperature_celsius=91)
    quiet = replace(SNAPSHOT.trainings[0], status=replace(SNAPSHOT.trainings[0].status, retries=0, checkpoints=0))
    device, training = (
        next(line for line in lines(replace(SNAPSHOT, devices=(hot,), trainings=(quiet,))) if word in line.text)
        for word in ("card a", "train.py  1,200")
    )
    assert (device.health, training.health) == (Health.NOTE, Health.OK)
    assert training.text.endswith("-")


def test_without_anything_to_show_there_are_no_empty_tables() -> None:
    bare = replace(SNAPSHOT, devices=SNAPSHOT.devices[3:], trainings=(), searches=(), notes=(), driver="")
    first, *rest = [line.text for line in lines(bare)]
    assert first == "box  2026-11-30 10:20:31 UTC  no NVML"
    assert len(rest) == 2


def test_long_commands_are_cut() -> None:
    (tenant,) = [one for one in SNAPSHOT.devices[0].tenants or () if one.user]
    long = replace(SNAPSHOT.devices[0], tenants=(replace(tenant, command="x" * 200),))
    (line,) = [line.text for line in lines(replace(SNAPSHOT, devices=(long,))) if "xxx" in line.text]
    assert line.endswith("x" * 57 + "...")
