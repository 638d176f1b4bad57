"""The files of one client: a file alone, or a folder with the files `train` and `test`."""

from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._pictures import ENDINGS as PICTURE_ENDINGS
from fedblade.data.own_files import ENDINGS, is_own_file, read_own_file, with_test

Parts = tuple[Path, Path | None]
"""The training file of a client, and its test file if there is one."""
EXPECTED = (
    f"a file for each client ({', '.join(ENDINGS)}), such as north.csv, or a folder for each client with train.csv "
    f"and, if there are test samples, test.csv"
)
"""What a folder of clients holds, for errors."""
_PICTURES = (
    " Pictures are read by --set dataset=image_folder, which divides them; to keep the clients, store each client's "
    "pictures as the arrays x and y in an .npz file."
)


def is_client_data(path: str | Path) -> bool:
    """Whether a path is that of a client's data: a file by its ending, which may be missing, or a folder."""
    return is_own_file(path) or Path(path).expanduser().is_dir()


def parts_of(path: str | Path) -> Parts:
    """The files of a client. A file alone may hold both parts."""
    place = Path(path).expanduser()
    return _parts_in(place) if place.is_dir() else (place, None)


def read_parts(parts: Parts, settings: ReadSettings | None = None) -> OwnSamples:
    """The samples of a client, before labels are numbered and before a table is encoded.

    An error whose text repeats values of a file is a `QuotesData`.
    """
    train, test = parts
    samples = read_own_file(train, settings)
    return samples if test is None else with_test(samples, read_own_file(test, settings))


def checked_file(folder: Path, file: Path) -> Path:
    """A file in a folder of clients; refuses files that are not read."""
    if not is_own_file(file):
        hint = _PICTURES if file.is_dir() or file.suffix.lower() in PICTURE_ENDINGS else ""
        raise Misconfigured(
            f"'{folder}' has '{file.name}', which is no file of a client; expected {EXPECTED}. Move it elsewhere.{hint}"
        )
    return file


def _parts_in(folder: Path) -> Parts:
    """The files `train` and `test` in the folder of a client."""
    parts = {entry.stem: checked_file(folder, entry) for entry in folder.iterdir() if not entry.name.startswith(".")}
    others = sorted(parts.keys() - {"train", "test"})
    if "train" not in parts or others:
        fault = f"has '{parts[others[0]].name}'" if others else "has no file 'train'"
        raise Misconfigured(f"'{folder}' {fault}; expected {EXPECTED}. Rename the file.")
    return parts["train"], parts.get("test")
