"""Runs: set-up, the rounds, evaluation, personal models, checkpoints and trained models."""

from fedblade.runs._diagnostics import diagnostic_request
from fedblade.runs._driver import Driver, RoundRecord, RunListener
from fedblade.runs._engine_choice import STARTED_ENGINES, engine_summaries
from fedblade.runs._evaluation import holder, own_samples
from fedblade.runs._personal import stages_after_run
from fedblade.runs._precision import float32_products
from fedblade.runs._profile import MOST_OPERATORS, OPERATOR_SECONDS, Profile
from fedblade.runs._progress import Once, Silent, shown
from fedblade.runs._request import check_folder, folder_name, load_config, next_run_folder, requested_config
from fedblade.runs._result import Result
from fedblade.runs._reuse import Today, code_difference
from fedblade.runs._run import execute, followed, run
from fedblade.runs._setup import (
    MOST_MEASURED,
    Setup,
    choose_measured,
    deal_samples,
    find_device,
    give_tests,
    hold_validation,
    plan_phases,
    prepare,
    split_clients,
)
from fedblade.runs._threads import fitting_threads
from fedblade.runs._traffic import broadcast_bytes, exchange_bytes_down, model_bytes
from fedblade.runs._trained_model import TrainedModel, load

__all__ = [
    "MOST_MEASURED",
    "MOST_OPERATORS",
    "OPERATOR_SECONDS",
    "STARTED_ENGINES",
    "Driver",
    "Once",
    "Profile",
    "Result",
    "RoundRecord",
    "RunListener",
    "Setup",
    "Silent",
    "Today",
    "TrainedModel",
    "broadcast_bytes",
    "check_folder",
    "choose_measured",
    "code_difference",
    "deal_samples",
    "diagnostic_request",
    "engine_summaries",
    "exchange_bytes_down",
    "execute",
    "find_device",
    "fitting_threads",
    "float32_products",
    "folder_name",
    "followed",
    "give_tests",
    "hold_validation",
    "holder",
    "load",
    "load_config",
    "model_bytes",
    "next_run_folder",
    "own_samples",
    "plan_phases",
    "prepare",
    "requested_config",
    "run",
    "shown",
    "split_clients",
    "stages_after_run",
]
