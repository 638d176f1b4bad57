"""Which clients take part in a round: the cohort.

A participation is a function of a `ParticipationView` that returns the ids of clients. Its arguments with defaults are
its knobs. `uniform`, `by_size`, `fixed` and `power_of_choice` come with the library; a function of your own needs no
more than its place: `participation=file.py:name`.
"""

from fedblade.participations._check import chosen_clients
from fedblade.participations._fixed import fixed
from fedblade.participations._power_of_choice import power_of_choice
from fedblade.participations._random import by_size, uniform
from fedblade.participations._view import AskLosses, ParticipationView

__all__ = ["AskLosses", "ParticipationView", "by_size", "chosen_clients", "fixed", "power_of_choice", "uniform"]
