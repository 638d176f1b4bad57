"""The page for this machine: what it answers, whom, and that it only reads."""

import http.client
import json
import re
import socket
import threading
from contextlib import contextmanager

import pytest

from fedblade.core.errors import Misconfigured
from fedblade.watch import _page, _server, open_server
from fedblade.watch._page import LivePage, refreshing

POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


@contextmanager
def serving(path):
    with open_server(path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server, path="/", method="GET", host="127.0.0.1", headers=()):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    connection.putrequest(method, path, skip_host=True)
    for name, value in [*([] if host is None else [("Host", host)]), *headers]:
        connection.putheader(name, value)
    connection.endheaders()
    reply = connection.getresponse()
    body = reply.read().decode()
    connection.close()
    return reply.status, dict(reply.getheaders()), body


@pytest.fixture
def server(run):
    run.rounds(5)
    with serving(run.path) as found:
        yield found


def eager(server):
    """No rest between builds, so that a test need not wait for it."""
    server.page._rest_until = 0.0


def test_the_page_is_the_report_and_knows_its_version(server):
    status, headers, body = ask(server)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Cache-Control"] == "no-store"
    assert int(headers["Content-Length"]) == len(body.encode())
    assert "fedblade on digits" in body
    eager(server)
    _, _, version = ask(server, "/version")
    assert f'version = "{version}"' in body
    assert body.count("fetch(") == body.count('fetch("/version"') == 1
    assert "connect-src 'self'" in POLICY.search(body)[1]
    assert "default-src 'none'" in POLICY.search(body)[1]


def test_the_version_changes_with_a_round_and_with_the_summary(server, run, untouched):
    seen = []
    for change in (lambda: None, lambda: run.rounds(6), lambda: run.end("finished", 6, at=run.start + 12)):
        change()
        eager(server)
        with untouched:
            version, page = ask(server, "/version")[2], ask(server)[2]
        assert f'version = "{version}"' in page
        seen.append((version, page))
    assert len({version for version, _ in seen}) == len({page for _, page in seen}) == 3


def test_building_rests_so_that_the_run_is_not_slowed_down(run, monkeypatch):
    now = [100.0]

    def build(paths, out):
        now[0] += 3.0
        out.write_text(f"<body>{now[0]}</body>")
        return out

    monkeypatch.setattr(_page, "build_report", build)
    monkeypatch.setattr(_page.time, "monotonic", lambda: now[0])
    run.rounds(1)
    page = LivePage(run.path)
    first, version = page.content(), page.version()
    run.rounds(2)
    now[0] = 132.9
    assert (page.content(), page.version()) == (first, version)
    now[0] = 133.0
    assert page.version() != version
    assert page.content() != first


def test_no_other_address_is_answered(server):
    for path in (
        "/index.html", "/version/", "/history.jsonl", "/config.toml", "/../config.toml", "/%2e%2e/run/config.toml",
        "/?x=1", "/version?x", "//etc/passwd", "/.", "http://127.0.0.1/", "*",
    ):  # fmt: skip
        status, _, body = ask(server, path)
        assert (path, status, body) == (path, 404, "not found\n")


def test_no_other_method_is_answered(server):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"):
        for path in ("/", "/version", "/other"):
            status, headers, body = ask(server, path, method)
            assert (method, status, headers["Allow"], body) == (method, 405, "GET, HEAD", "read-only\n")


def test_other_hosts_are_refused(server):
    for host in (
        "evil.example", "evil.example:8642", "127.0.0.1.evil.example", "localhost.evil.example", "0.0.0.0",
        "10.0.0.1", "", None, "user@127.0.0.1", "127.0.0.1:80:80", "127.0.0.1:x", "[::2]:80",
    ):  # fmt: skip
        for path in ("/", "/version", "/other"):
            status, _, body = ask(server, path, host=host)
            assert (host, status, body) == (host, 403, "this page is for this machine only\n")


def test_two_hosts_are_refused(server):
    assert ask(server, headers=[("Host", "127.0.0.1")])[0] == 403


def test_names_of_this_machine_are_answered(server):
    for host in ("127.0.0.1", "127.0.0.1:9", "localhost", "LOCALHOST:8642", "[::1]", "[::1]:8642"):
        assert (host, ask(server, "/version", host=host)[0]) == (host, 200)


def test_head_has_no_body(server):
    status, headers, body = ask(server, "/version", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) == 16


def test_only_the_loopback_address_is_bound(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/"


def test_the_next_free_port_is_taken_and_a_taken_one_is_refused(run, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=rf"port {port} cannot be used .*in use.*--port"):
            open_server(run.path, port)
        monkeypatch.setattr(_server, "_FIRST_PORT", port)
        with open_server(run.path) as server:
            assert port < server.server_port < port + 100
        monkeypatch.setattr(_server, "_PORTS", 1)
        with pytest.raises(Misconfigured, match=f"no port from {port} to {port} is free"):
            open_server(run.path)


def test_a_folder_without_a_run_waits_and_one_that_is_missing_is_refused(tmp_path):
    with pytest.raises(Misconfigured, match="does not exist"):
        open_server(tmp_path / "gone")
    (tmp_path / "<b>").mkdir()
    with serving(tmp_path / "<b>") as server:
        status, _, body = ask(server)
    assert status == 200
    assert "Waiting for a run" in body
    assert "<b>" not in body
    assert POLICY.search(body)[1] == "default-src 'none'; connect-src 'self'; script-src 'unsafe-inline'"


def test_a_run_that_cannot_be_read_keeps_the_last_page(server, run):
    assert "fedblade on digits" in ask(server)[2]
    run.write("history.jsonl", "torn\n{}\n", at=run.start + 99)
    eager(server)
    version, body = ask(server, "/version")[2], ask(server)[2]
    assert "fedblade on digits" in body
    assert f'version = "{version}"' in body


def test_the_policy_and_the_script_are_put_where_they_belong():
    page = (
        '<head><meta http-equiv="Content-Security-Policy" content="default-src \'none\'"></head>'
        "<body>&lt;/body&gt; in text</body>\n"
    )
    served = refreshing(page, json.dumps("v"))
    assert served.endswith("</script></body>\n")
    assert POLICY.search(served)[1] == "default-src 'none'; connect-src 'self'"
