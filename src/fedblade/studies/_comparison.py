"""The runs of a comparison: every method with every seed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedblade.config.overrides import name_keys
from fedblade.core.errors import Misconfigured
from fedblade.presets.catalogue import refuse_grid
from fedblade.runs import check_folder, folder_name, load_config
from fedblade.studies._planned_run import PlannedRun


def plan_comparison(
    source: str | Path | None,
    overrides: Mapping[str, Any],
    methods: Sequence[Any],
    seeds: Sequence[int] | None,
    out: Path,
) -> list[PlannedRun]:
    """The runs of a comparison; all configurations and folders are checked before the first run starts.

    `methods` are names, or functions that were registered.
    Without `seeds`, that of the overrides counts, and otherwise those of the preset.
    """
    refuse_grid(
        source,
        "A comparison needs one setting. Use `fedblade reproduce {} --where method=A --where method=B`, which compares "
        "the methods of the grid.",
    )
    given = next((key for key in name_keys("method") if key in overrides), None)
    if given is not None:
        raise Misconfigured(
            f"{given} = {overrides[given]!r} has no effect, because a comparison has its own list of methods. Add the "
            f"method to it, or leave {given} out."
        )
    chosen = seeds or ([overrides["seed"]] if "seed" in overrides else None)
    runs: list[PlannedRun] = []
    for method in methods:
        first, suggested = load_config(source, {**overrides, "method": method})
        name = first.method.name
        for seed in chosen or suggested:
            config, _ = load_config(source, {**overrides, "method": method, "seed": seed})
            config.build_method()
            run = PlannedRun(f"{name} seed {seed}", out / f"{folder_name(name)}-seed{seed}", config)
            check_folder(run.directory, config, resume=True)
            runs.append(run)
    return runs
