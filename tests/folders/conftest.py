"""Lets the tests here import the script that made the stored folders, and nodes that run in this process."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent / "nodes")]
