"""The benchmarks of fedblade, run by `fedblade bench` in a checkout; no part of the installed package.

This module imports nothing, because worker processes of other frameworks import it while they are timed.
"""
