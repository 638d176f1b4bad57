"""Lets the tests here import the conformance checks, the small federation and the cases of models."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "methods"))
sys.path.append(str(Path(__file__).parents[1] / "models"))
