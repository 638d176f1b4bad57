"""Engines compute the clients of a cohort: one by one, stacked into one computation, in processes, or on nodes."""
