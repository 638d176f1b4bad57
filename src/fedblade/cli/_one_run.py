"""The folder of one run, for commands that work on one model."""

from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.core.words import plural, short_listing
from fedblade.results import RunDirectory, run_folders


def one_run(folder: Path) -> Path:
    """The folder of the run, or of the only run below; several runs are refused with their names."""
    if RunDirectory(folder).exists or not folder.is_dir():
        return folder
    runs = list(run_folders(folder))
    if len(runs) > 1:
        names = short_listing([f"'{run}'" for run in runs])
        raise Misconfigured(f"'{folder}' holds {plural(len(runs), 'run')}; expected one. Name one of them: {names}.")
    return runs[0] if runs else folder
