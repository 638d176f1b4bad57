"""Lets the tests here import the small federation they all share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "methods"))
