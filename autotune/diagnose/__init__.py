"""What ``autotune diagnose`` looks at. Pure judging, and observers that stand beside a training within a probe process.

Each section has an observer (an ``Examiner``: it steps a training and notes what it sees, with torch, in the child) and a
judge (pure: what was seen becomes what is reported, in the parent). Nothing here starts processes or prints.
"""
