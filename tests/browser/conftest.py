"""Run directories come from the tests of the report."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "unit" / "report"))
