"""Programs that a benchmark starts in a fresh process: `python -m benchmarks.processes.NAME FOLDER ...`.

A program writes its numbers to `result.json` in the folder.
"""
