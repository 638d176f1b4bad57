"""Runs: set-up, the rounds, evaluation, personal models, checkpoints and trained models.

- A whole run: `run`, `execute`, `RunJob`, and what it gives: `Result`, `TrainedModel`, `load`, `stored_result`. Objects
  from Python that stand where a configuration has names: `GivenObjects`, `take_objects`.
- A run in steps: `prepare` builds a `Setup`, a `Driver` does its rounds.
- Before a run: its configuration (`load_config`, `RunRequest`), its folder (`check_folder`, `chosen_folder`,
  `folder_name`, `next_run_folder`), its data (`named_dataset`, `client_names`), its split (`split_clients`,
  `split_training_data`, `training_split`), its work (`Work`, `count_work`, `guess_work`, `steps_of_groups`), its device
  (`find_device`), and the engines (`engine_summaries`, `STARTED_ENGINES`).
- Listeners: `RunListener`, `RoundRecord`, `overview_of`, `progress_listener`, `run_listener`, `Callback`, `Progress`,
  `progress_console`, `round_facts`, `UniqueNotes`, `NoteLogger`.
- Runs on disk: `ReuseCheck`, `code_difference`, `revisions_of`, `finished_summary`, `origin_notes`.
- The client half of a run, for a client on another machine: `compute_settings`, `plan_phases`, `tuning_stages`,
  `diagnostic_request`, `measured_client`, `download_bytes`; `Claims` says which accuracies such clients measure.
"""

from fedblade.core.listener import RoundRecord, RunListener
from fedblade.runs._callbacks import Callback
from fedblade.runs._claims import Claims
from fedblade.runs._device import find_device
from fedblade.runs._diagnostics import diagnostic_request
from fedblade.runs._driver import Driver
from fedblade.runs._engine_choice import STARTED_ENGINES, engine_summaries
from fedblade.runs._evaluation import measured_client
from fedblade.runs._exchanges import download_bytes
from fedblade.runs._given_objects import GivenObjects, take_objects
from fedblade.runs._job import RunJob
from fedblade.runs._overview import overview_of, round_facts
from fedblade.runs._progress import NoteLogger, Progress, UniqueNotes, progress_console, progress_listener, run_listener
from fedblade.runs._request import RunRequest, check_folder, folder_name, load_config, next_run_folder
from fedblade.runs._result import Result, finished_summary, stored_result
from fedblade.runs._reuse import ReuseCheck, code_difference
from fedblade.runs._revisions import revisions_of
from fedblade.runs._roll_back import chosen_folder
from fedblade.runs._run import execute, run
from fedblade.runs._setup import Setup, plan_phases, prepare
from fedblade.runs._split import client_names, named_dataset, split_clients, split_training_data, training_split
from fedblade.runs._summary import origin_notes
from fedblade.runs._threads import compute_settings
from fedblade.runs._trained_model import TrainedModel, load
from fedblade.runs._tuning import tuning_stages
from fedblade.runs._work import Work, count_work, guess_work, steps_of_groups

__all__ = [
    "STARTED_ENGINES",
    "Callback",
    "Claims",
    "Driver",
    "GivenObjects",
    "NoteLogger",
    "Progress",
    "Result",
    "ReuseCheck",
    "RoundRecord",
    "RunJob",
    "RunListener",
    "RunRequest",
    "Setup",
    "TrainedModel",
    "UniqueNotes",
    "Work",
    "check_folder",
    "chosen_folder",
    "client_names",
    "code_difference",
    "compute_settings",
    "count_work",
    "diagnostic_request",
    "download_bytes",
    "engine_summaries",
    "execute",
    "find_device",
    "finished_summary",
    "folder_name",
    "guess_work",
    "load",
    "load_config",
    "measured_client",
    "named_dataset",
    "next_run_folder",
    "origin_notes",
    "overview_of",
    "plan_phases",
    "prepare",
    "progress_console",
    "progress_listener",
    "revisions_of",
    "round_facts",
    "run",
    "run_listener",
    "split_clients",
    "split_training_data",
    "steps_of_groups",
    "stored_result",
    "take_objects",
    "training_split",
    "tuning_stages",
]
