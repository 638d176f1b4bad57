"""The configuration of a run.

- `run_config`: `RunConfig`, and `complete_config`, which checks tables and fills in every default.
- `schema`: the sections with their keys, types and defaults.
- `overrides`: short keys on the command line and in Python.
- `population`: what follows from the clients that the data come with, and cohorts larger than the population.
- `settings`: tables merged, and read at dotted keys.
- `validation`: checks with errors that name the key.
- `literals`: values as TOML writes them.
"""
