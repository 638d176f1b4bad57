"""Lets the tests here import the presets they all share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
