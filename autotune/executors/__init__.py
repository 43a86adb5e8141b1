"""Probes on several workers: devices of this host, jobs of Slurm, actors of Ray.

A worker is a process of its own near its device. It holds the workload loaded, as a search on one device does, and answers
one probe at a time; questions and answers are JSON that is validated on arrival. ``workers`` is the tool's side: a
laboratory as ``ports`` has it, and a bench on which probes run side by side. ``ahead`` uses that: it runs probes before they
are asked for, where the search will probably want them, and changes nothing of what the search sees.
"""
