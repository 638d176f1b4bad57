"""One test for many small cases: every case is checked, and all failures are reported together."""

import traceback
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_every(cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Turn a check of one case into a test of all cases. A tuple is passed as several arguments.

    Use this for many quick checks of a catalogue. pytest takes about a millisecond for each test id of its own.
    """
    listed = list(cases)

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            check_all(listed, check)

        test.__name__, test.__qualname__, test.__doc__ = check.__name__, check.__qualname__, check.__doc__
        test.__module__ = check.__module__
        return test

    return decorate


def check_all(cases: Iterable[Any], check: Callable[..., None]) -> None:
    """Check every case, then fail with the errors of all cases that failed."""
    listed = list(cases)
    assert listed, "a test of no case checks nothing"
    failures = [failure for case in listed if (failure := failure_of(check, case))]
    if failures:
        pytest.fail(f"{len(failures)} of {len(listed)} cases failed\n" + "\n".join(failures), pytrace=False)


def failure_of(check: Callable[..., None], case: Any) -> str | None:
    """The case and the last calls of its error, or None where the check passes."""
    try:
        check(*case) if isinstance(case, tuple) else check(case)
    except (Exception, pytest.fail.Exception):
        return f"{case!r}:\n{traceback.format_exc(limit=-3)}"
    return None
