"""Presets as data: single runs, the grids of papers, and published numbers.

`catalogue` finds presets and files, `grid` expands a grid into cells, `published` joins cells with published numbers,
and `names` has the names that papers use. The TOML files and the published numbers are in `files/`.
"""
