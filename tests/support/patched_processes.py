"""Code of a test in the processes that a command starts: modules are changed right after they are imported."""

from pathlib import Path

_SITE = """\
import importlib.util
import sys
from importlib.abc import MetaPathFinder

{code}


class Patched(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        patch = PATCHES.pop(name, None)
        if patch is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def execute_and_patch(module):
            execute(module)
            patch(module)

        spec.loader.exec_module = execute_and_patch
        return spec


sys.meta_path.insert(0, Patched())
"""


def patching(folder: Path, code: str) -> dict[str, str]:
    """Environment variables by which every Python process runs code; it defines `PATCHES`, functions by module."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(_SITE.format(code=code))
    return {"PYTHONPATH": str(folder)}
