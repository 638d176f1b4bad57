"""Make CSV files, the tables of the pages and the figure of ranks from the kept runs: `python tabulate.py [FOLDER]`.

FOLDER has `queue` and the pages, and is this one if it is left out. A page marks each table that is made here by
comments with the table's name. With two arguments, `python tabulate.py CELLS INTO`, the CSV files of the first study
are made from its run folders.
"""

import sys
from pathlib import Path

import first_study
import tables

MARK = "<!-- {} {} -->"


def put(page: str, name: str, table: str) -> str:
    """The text of a page with a new table between the comments of this name."""
    begin, end = MARK.format("table", name), MARK.format("end of", name)
    before, found, rest = page.partition(begin)
    if not found or end not in rest:
        sys.exit(f"a page has no place for the table '{name}'; expected the comments '{begin}' and '{end}'.")
    return f"{before}{begin}\n\n{table}\n\n{end}{rest.partition(end)[2]}"


def main(folder: Path) -> None:
    """Write everything that follows from the kept runs, or nothing."""
    queue = folder / "queue"
    contents = tables.files(queue)
    for page, made in tables.of_pages(queue).items():
        contents[page] = (folder / page).read_text(encoding="utf-8")
        for name, table in made.items():
            contents[page] = put(contents[page], name, table)
    for name, content in contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")


if __name__ == "__main__":
    given = [Path(argument) for argument in sys.argv[1:]]
    if len(given) > 2:
        sys.exit(__doc__)
    if len(given) == 2:
        first_study.tabulate(*given)
    else:
        main(given[0] if given else Path(__file__).parent)
