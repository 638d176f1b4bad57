"""What files of tables have in common: which columns are labels and inputs, and the samples that they become."""

from collections.abc import Iterable, Mapping, Sequence

from fedblade.core.errors import Misconfigured, nearest
from fedblade.data._cells import ColumnPlace, check_missing
from fedblade.data._own_samples import OwnSamples, ReadSettings
from fedblade.data._source import Array
from fedblade.data._table import Table


def check_settings(file: str, header: Sequence[str], settings: ReadSettings) -> None:
    """Refuse settings that name columns which a file lacks."""
    _check_present(file, "label", [settings.label] if settings.label else [], header)
    _check_present(file, "drop", settings.drop, header)
    lacking = [name for name in settings.only if name not in header]
    if lacking:
        hint = nearest(lacking[0], header)
        raise Misconfigured(f"'{file}' has no column '{lacking[0]}'; expected the columns of training. Add it.{hint}")
    _check_present(file, "categories", settings.categories, header)
    if settings.label in settings.drop:
        raise Misconfigured(f"dataset.drop names the label column '{settings.label}'. Name another column.")


def _check_present(file: str, key: str, names: Iterable[str], header: Sequence[str]) -> None:
    for name in names:
        if name not in header:
            same = [column for column in header if column.casefold() == name.casefold()]
            hint = f" Did you mean '{same[0]}'?" if same else nearest(name, header)
            what = "label column" if key == "label" else "column"
            raise Misconfigured(f"'{file}' has no {what} '{name}'. Name one of its columns: dataset.{key}=NAME.{hint}")


def table_samples(
    columns: Mapping[str, Array], labels: Array, settings: ReadSettings, place: ColumnPlace
) -> OwnSamples:
    """Columns and labels as samples, after a check of missing values. `place` is that of the labels."""
    if not columns:
        raise Misconfigured(f"'{place.file}' has no column besides '{settings.label}'; expected inputs. Add columns.")
    for name, column in columns.items():
        check_missing(column, ColumnPlace(place.file, name, place.first_row), fills=settings.missing == "fill")
    return OwnSamples(Table(columns, fills=settings.missing == "fill"), labels)
