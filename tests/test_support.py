"""The helpers of the tests: a check of many cases reports all failures."""

import pytest

from support.for_every import check_all, for_every


@for_every([(2, 4), (3, 9)])
def test_a_tuple_is_passed_as_several_arguments(number, square):
    assert number * number == square


def test_every_case_that_fails_is_reported():
    def is_even(number):
        assert number % 2 == 0

    with pytest.raises(pytest.fail.Exception, match=r"2 of 4 cases failed\n1:(.|\n)*\n3:"):
        check_all([1, 2, 3, 4], is_even)


def test_no_case_is_no_test():
    with pytest.raises(AssertionError, match="no case"):
        check_all([], print)
