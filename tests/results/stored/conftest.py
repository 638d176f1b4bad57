"""Copies of the stored folders."""

import shutil

import pytest

from support.stored_folders import STORED


@pytest.fixture
def stored(tmp_path):
    """A copy of all stored folders, to be written to."""
    return shutil.copytree(STORED, tmp_path / "stored")
