"""Makes the notebooks in docs/notebooks from the scripts beside them, executes them, and stores their outputs.

`make notebooks` makes all of them; names of notebooks as arguments make only these. A script has cells that begin with
`# %%`: text with `# %% [markdown]`, and `# %% parameters` for the cell whose numbers a test makes smaller.
"""

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

FOLDER = Path(__file__).parent / "notebooks"
_SECONDS = 600
ENVIRONMENT = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    "OMP_NUM_THREADS": "2",
}
"""Of the kernel: pictures go into the notebook."""
_START = "%config InlineBackend.print_figure_kwargs = {'dpi': 70, 'metadata': {'Software': None}}"
"""Pictures of a size that a repository can hold. The cell is run and not stored."""


def unexecuted(script: Path, parameters: str | None = None) -> Any:
    """The notebook of a script. `parameters` takes the place of the cell of parameters."""
    cells = []
    for number, block in enumerate(re.split(r"^# %%", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]):
        kind, _, text = block.partition("\n")
        if kind.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in text.strip().splitlines()]
            cell = nbformat.v4.new_markdown_cell("\n".join(lines))
        else:
            chosen = parameters if kind.strip() == "parameters" and parameters is not None else text.strip()
            cell = nbformat.v4.new_code_cell(chosen)
        cell.id = f"cell-{number}"
        cells.append(cell)
    language = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return nbformat.v4.new_notebook(cells=cells, metadata=language | {"language_info": {"name": "python"}})


def execute(notebook: Any) -> Any:
    """Run all cells; an error in a cell is an error here. Returns the notebook with outputs and without times."""
    notebook.cells.insert(0, nbformat.v4.new_code_cell(_START, id="start"))
    with TemporaryDirectory() as folder:
        # Kernel and client talk through files in a folder that no other user of the machine can open.
        kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        NotebookClient(notebook, km=kernel, timeout=_SECONDS, record_timing=False).execute()
    notebook.cells.pop(0)
    for count, cell in enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def main(names: list[str]) -> None:
    """Make the notebooks of these names, or all."""
    os.environ.update(ENVIRONMENT)
    for script in sorted(FOLDER.glob("tutorial-*.py")):
        if not names or script.stem in names:
            target = script.with_suffix(".ipynb")
            nbformat.write(execute(unexecuted(script)), target)
            print(target.relative_to(FOLDER.parents[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
