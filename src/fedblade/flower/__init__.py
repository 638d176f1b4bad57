"""Deployed runs: the client half and the server half of a run as Flower apps, and what starts them."""

from fedblade.flower._app import read_app
from fedblade.flower._follow import follow
from fedblade.flower._place import app_place, importable
from fedblade.flower._project import make_app
from fedblade.flower._rehearsal import down, record_of, up
from fedblade.flower._status import Status, status_of

__all__ = [
    "Status",
    "app_place",
    "down",
    "follow",
    "importable",
    "make_app",
    "read_app",
    "record_of",
    "status_of",
    "up",
]
