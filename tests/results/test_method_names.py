"""Methods of the user's own have short names in tables."""

from fedblade.results import short_names


def test_a_path_is_left_out():
    assert short_names(["fedprox", "/a/b/mine.py:relative+feddecorr"]) == {
        "fedprox": "fedprox",
        "/a/b/mine.py:relative+feddecorr": "relative+feddecorr",
    }


def test_methods_of_one_name_keep_their_file_or_their_path():
    names = ["fedprox", "/a/mine.py:fedprox", "/a/yours.py:one", "/b/yours.py:one"]
    assert list(short_names(names).values()) == ["fedprox", "mine:fedprox", "/a/yours.py:one", "/b/yours.py:one"]
