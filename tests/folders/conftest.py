"""Copies of the stored folders. Tests here can import the script that made them, and nodes that run in this process."""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "nodes")]


@pytest.fixture
def stored(tmp_path):
    """A copy of all stored folders, to be written to."""
    return shutil.copytree(HERE / "stored", tmp_path / "stored")
