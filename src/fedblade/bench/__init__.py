"""Benchmarks: ratios measured in one run, each with its goal, what it ran and, where it could not run, why.

`fedblade bench` runs them. Nothing here is imported by the library itself, and competitors run in processes of their
own. This module imports nothing, because their worker processes import it too, on the clock.
"""
