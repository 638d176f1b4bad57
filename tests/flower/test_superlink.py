"""Commands of `flwr` in a process of its own."""

import pytest

pytest.importorskip("flwr")
from fedblade.core.errors import RunFailed
from fedblade.flower._processes import free_ports
from fedblade.flower._superlink import SuperLink, write_connection
from fedblade.flower.app_folder import AppFolder


def test_one_process_answers_many_commands_and_says_what_failed(tmp_path):
    app = AppFolder(tmp_path / "my app")
    port = free_ports(1)[0]
    write_connection(app, f"127.0.0.1:{port}", None)
    with SuperLink(app) as superlink:
        with pytest.raises(RunFailed, match=r"'flwr supernode list local-federation' failed: .*unavailable"):
            superlink.nodes()
        with pytest.raises(RunFailed, match=r"'flwr run .*' failed: .*pyproject.toml"):
            superlink.begin(tmp_path, tmp_path / "settings.toml")
        process = superlink._process
        with pytest.raises(RunFailed, match=r"'flwr stop 7 local-federation' failed: .*unavailable"):
            superlink.stop("7")
        process.kill()
        process.wait()
        with pytest.raises(RunFailed, match="Check the installation of flwr"):
            superlink.runs()
