"""What is released: a wheel and a source archive that install, and run the demo, where there is no checkout."""

import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import fedblade

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"


DOCUMENTS = ("README.md", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "LICENSE", "NOTICE")


def build(kind: str, source: Path, target: Path) -> Path:
    """Build `wheel` or `sdist` from a folder with the setuptools of this environment; returns the file."""
    command = [sys.executable, "-c", BUILD, f"build_{kind}", target]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def tracked_copy(target: Path) -> Path:
    """The files of the repository, as a fresh clone has them."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if name.startswith(("src/", "tests/test_", "pyproject", "MANIFEST", *DOCUMENTS)):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes((ROOT / name).read_bytes())
    return target


def wheel_files(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("fedblade/")}


@pytest.mark.slow
def test_wheel_and_source_archive_run_the_demo_in_an_empty_environment(tmp_path):
    """The environment has the dependencies of this one, and no fedblade but the wheel's."""
    source = tracked_copy(tmp_path / "source")
    wheel, archive = build("wheel", source, tmp_path), build("sdist", source, tmp_path)
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert {name for name in (*DOCUMENTS, "tests") if (unpacked / name).exists()} == set(DOCUMENTS)
    again = build("wheel", unpacked, tmp_path / "unpacked")
    assert wheel_files(wheel) == wheel_files(again)
    assert {"fedblade/py.typed", "fedblade/data/digits.npz"} <= wheel_files(wheel)

    subprocess.run([sys.executable, "-m", "venv", tmp_path / "empty"], check=True)
    python = tmp_path / "empty" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", again]
    subprocess.run(install, check=True)
    (site,) = (tmp_path / "empty" / "lib").glob("python*/site-packages")
    # A folder named in a .pth file is searched, and .pth files in it, such as that of a checkout, are not.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")

    where = [python, "-c", "import fedblade; print(fedblade.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(tmp_path / "empty")
    demo = [tmp_path / "empty" / "bin" / "fedblade", "compare", "--methods", "fedavg,fedetf,fedblade"]
    short = ["--threshold", "90", "--set", "rounds=2", "--seeds", "1", "--out", "demo"]
    done = subprocess.run([*demo, *short], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "demo/report.html"
    assert "<table" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")


def test_every_place_names_the_same_version_and_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {fedblade.__version__}\n" in citation
    assert f"version = {{{fedblade.__version__}}}" in (ROOT / "docs/how-to-cite.md").read_text(encoding="utf-8")
    assert f"## {fedblade.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^license: (.+)$", citation, re.MULTILINE)[1] in project["license"]


def test_the_citation_names_the_papers_that_the_methods_name():
    """Both files have the five papers, with the identifiers that the cards show."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    page = (ROOT / "docs/how-to-cite.md").read_text(encoding="utf-8")
    from fedblade.core.registry import methods

    papers = {methods.get(name).info["paper"] for name in ("feddecorr", "fedetf", "fedgela", "feddr_plus")}
    found = {each["value"] for reference in cited["references"] for each in reference.get("identifiers", ())}
    assert papers == found
    assert all(paper in page for paper in papers)
    assert len(cited["references"]) == page.count("@article") + page.count("@unpublished") == 5


def help_of(command: str) -> str:
    words = [sys.executable, "-m", "fedblade", *command.split(), "--help"]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_commands_of_the_container_file_exist():
    """No container is built here: every fedblade command in the file has help, and every copied file exists."""
    text = (ROOT / "Containerfile").read_text(encoding="utf-8")
    start = json.loads(re.search(r"^CMD (\[.+\])$", text, re.MULTILINE)[1])
    named = {" ".join(start[:2]), *re.findall(r"fedblade (?:flower \w+|doctor)", text)}
    shown = {command: help_of(command.removeprefix("fedblade ")) for command in sorted(named)}
    assert {"fedblade flower join", "fedblade flower node", "fedblade doctor", "fedblade compare"} == set(shown)
    options = [option for option in start if option.startswith("--")]
    assert [option for option in options if option not in shown["fedblade compare"]] == []
    ignored = (ROOT / ".containerignore").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--)(.+) \S+$", text, re.MULTILINE):
        assert [name for name in line.split() if not (ROOT / name).exists() or f"!{name}\n" not in ignored] == []
