"""The sums that a hospital gave away, held against what its node is asked to read.

Who writes an agreement by hand can name another column as the label, or leave no column out: class counts and
categories would then tell what the hospital never gave away. A node that has the hospital's own file of sums refuses
that.
"""

from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.data.own_files import ReadSettings
from fedblade.flower.agreement import Agreement
from fedblade.flower.sums_file import read_sums_file, sums_of


def check_given_sums(path: str, data: str, client: int, agreement: Agreement | None) -> tuple[str, ...]:
    """Refuse an agreement on other settings than those of the file of sums; a line if the data have other sums now."""
    given = read_sums_file(Path(path))
    if given.client != client:
        raise Misconfigured(
            f"sums = '{path}' are those of client {given.client}, and this node speaks for client {client}. Make the "
            f"file anew with --client {client}, and let the coordinator agree anew."
        )
    if agreement is None or _options(agreement.settings) != _options(given.settings):
        agreed = "nothing" if agreement is None else _options(agreement.settings)
        raise Misconfigured(
            f"the app was agreed on with {agreed}, and the sums of this node ('{path}') were made with "
            f"{_options(given.settings)}; expected the same. Ask the coordinator, and pin no app that reads the table "
            f"in another way than you chose."
        )
    if sums_of(data, client, given.seed, given.settings or ReadSettings()) == given:
        return ()
    return (
        f"the data '{data}' no longer have the sums in '{path}'; they are encoded by the agreement as it is. If they "
        f"changed much, make sums and agreement anew",
    )


def _options(settings: ReadSettings | None) -> str:
    """The settings as options of `fedblade flower sums`; names in any order are the same."""
    if settings is None:
        return "names of classes alone"
    lists = {"drop": settings.drop, "categories": settings.categories}
    named = [f"--{option} {','.join(sorted(names))}" for option, names in lists.items() if names]
    return " ".join([f"--label {settings.label} --missing {settings.missing}", *named])
