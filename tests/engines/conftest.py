"""Lets the tests here import the conformance checks and the small federation."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "methods"))
