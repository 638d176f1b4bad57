"""Foreign code is sent to a deployment through every door, and runs nowhere."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr")
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supernode import node_auth_http_interceptor

from fedblade.engines.nodes import Request, SizeLimit, own_protocol
from fedblade.flower import _processes
from fedblade.flower._flwr_internals import tasks
from fedblade.flower._grid_transport import GridTransport
from fedblade.flower._processes import LOOPBACK
from fedblade.flower._superlink import SuperLink, write_connection
from fedblade.flower.app import read_app
from fedblade.flower.app_folder import AppFolder

from .conftest import Deployment, call

pytestmark = pytest.mark.thorough
NOBODY = 65534
_ASK = """\
import encodings.idna
import http.client
import os
import ssl
import sys

scheme, address, path, user, *forwarded = sys.argv[1:]
trust = {"context": ssl._create_unverified_context()} if scheme == "https" else {}
connection = (http.client.HTTPSConnection if trust else http.client.HTTPConnection)(address, **trust)
os.setuid(int(user))  # after the imports, because the other user may not read the files of this Python
connection.request("POST", path, headers={"x-forwarded-for": each for each in forwarded})
print(connection.getresponse().status)
"""


def signed(key: ec.EllipticCurvePrivateKey, ahead: float = 0) -> Mapping[str, str]:
    """The headers by which the owner of a key signs a call, by a clock that is some seconds ahead."""
    sent = httpx.Request("POST", "https://nowhere")
    with pytest.MonkeyPatch.context() as patched:
        time = datetime.now(UTC) + timedelta(seconds=ahead)
        patched.setattr(node_auth_http_interceptor, "now", lambda: time)
        signer = node_auth_http_interceptor.NodeAuthHttpInterceptor(key, key.public_key())
        signer.intercept(SimpleNamespace(request=sent), lambda _: None)  # type: ignore[arg-type, return-value]
    own = {name: value for name, value in sent.headers.items() if name.startswith("flwr-")}
    return own | {TIMESTAMP_HEADER: sent.headers[TIMESTAMP_HEADER], "content-type": "application/protobuf"}


def node_key(deployment: Deployment) -> ec.EllipticCurvePrivateKey:
    key = load_ssh_private_key(deployment.node.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return key


@pytest.fixture
def front(deployment: Deployment) -> Iterator[httpx.Client]:
    """A client that trusts the coordinator's authority, as everybody may."""
    trust = ssl.create_default_context(cafile=str(deployment.certificates / "ca.crt"))
    with httpx.Client(base_url=f"https://{deployment.record.address}", verify=trust) as client:
        yield client


@contextmanager
def hostile_coordinator(deployment: Deployment, app: Path) -> Iterator[GridTransport]:
    """A run of an app whose server is the test: what a coordinator can do whose machine was taken over."""
    executor = deployment.record.helpers["server-executor"].pid
    assert executor is not None
    os.kill(executor, signal.SIGSTOP)
    try:
        settings = deployment.folder / "hostile.toml"
        settings.write_text("")
        with SuperLink(deployment.app) as superlink:
            run = superlink.begin(app, settings)
            address = f"{LOOPBACK}:{deployment.record.superlink.port}"
            runtime = tasks.Runtime(address, deployment.certificates / "ca.crt")
            acquirer = runtime.acquirer(deployment.app.secret.read_bytes())
            task = tasks.acquire(acquirer, "serverapp")
            acquirer.close()
            assert task is not None
            grid = runtime.grid(task)
            try:
                with tasks.alive(tasks.grid_client(grid)):
                    grid.set_run(tasks.pull_input(tasks.grid_client(grid)).run)
                    yield GridTransport(grid)
            finally:
                tasks.finish_run(grid, "the attack is over")
            assert superlink.run(run)["status"] == "finished:failed"
    finally:
        os.kill(executor, signal.SIGCONT)


def reply_to(transport: GridTransport, facts: Mapping[str, object]) -> str:
    """The error in the node's reply to a greeting; the node may have to come online first."""
    while not transport.nodes():
        time.sleep(0.2)
    (node,) = transport.nodes()
    (asked,) = transport.send([Request("hello", node, dict(facts))], 60.0)
    assert asked is not None
    while True:
        for reply in transport.receive([asked], SizeLimit(10, 10_000)):
            return str(reply.error)
        time.sleep(0.2)


def test_foreign_code_would_leave_a_mark(deployment, tmp_path):
    foreign = deployment.foreign_app(tmp_path / "foreign")
    for half in ("server", "client"):
        subprocess.run([sys.executable, "-P", str(foreign / f"{half}_app.py")], check=True)
    assert deployment.marks == ["foreign-client", "foreign-server"]
    for mark in deployment.marks:
        (deployment.folder / "marks" / mark).unlink()


def test_nobody_starts_a_run_through_the_front(deployment, tmp_path):
    home = AppFolder(tmp_path / "stranger")
    write_connection(home, deployment.record.address, deployment.certificates / "ca.crt")
    command = [_processes.command("flwr"), "run", str(deployment.foreign_app(tmp_path / "foreign"))]
    done = subprocess.run(command, env=_processes.environment(home.home), capture_output=True, text=True)
    assert done.returncode != 0
    assert deployment.marks == []


@pytest.mark.parametrize("has_key", [False, True], ids=["stranger", "node"])
@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/list-runs", "/v1/control/start-run", "/v1/control/register-node", "/v1/runtime/acquire-task",
        "/v1/runtime/pull-task-input", "/v1/fleet/register-node", "/v1/fleet/%2e%2e/control/list-runs",
        "/v1/fleet/pull-messages/../../control/list-runs", "//v1/control/list-runs", "/docs",
        "/openapi.json", "/health",
    ],
)  # fmt: skip
def test_the_front_has_no_other_door(deployment, front, path, has_key):
    headers = signed(node_key(deployment)) if has_key else {}
    assert front.post(path, headers=headers).status_code == 404
    assert front.get(path, headers=headers).status_code == 404


def test_only_a_node_s_own_key_opens_its_messages(deployment, front):
    path, key = "/v1/fleet/pull-messages", node_key(deployment)
    (admitted,) = deployment_nodes(deployment)
    own, other = (PullMessagesRequest(node=Node(node_id=each)).SerializeToString() for each in (admitted, admitted + 1))
    assert front.post(path, content=own).status_code == 401
    assert front.post(path, content=own, headers=signed(ec.generate_private_key(ec.SECP384R1()))).status_code == 401
    forged = signed(key) | {"flwr-timestamp": "2026-01-01T00:00:00+00:00"}
    assert front.post(path, content=own, headers=forged).status_code == 401
    assert front.post(path, content=other, headers=signed(key)).status_code == 401
    assert front.post(path, content=own, headers=signed(key)).status_code == 200
    assert front.post(path, content=own, headers=signed(key, ahead=40)).status_code == 200
    assert front.post(path, content=own, headers=signed(key, ahead=80)).status_code == 401
    assert front.post(path, content=bytes(17 * 2**20), headers=signed(key)).status_code == 413
    in_another_name = [Message(metadata=Metadata(src_node_id=admitted + 1))]
    push = PushMessagesRequest(node=Node(node_id=admitted), messages_list=in_another_name).SerializeToString()
    assert front.post("/v1/fleet/push-messages", content=push, headers=signed(key)).status_code == 403


def deployment_nodes(deployment: Deployment) -> list[int]:
    with SuperLink(deployment.app) as superlink:
        return [int(node) for node in superlink.nodes()]


def test_a_foreign_app_of_the_coordinator_s_own_user_is_refused_by_the_pin(deployment, tmp_path):
    """This user may start runs, but the executor runs the server of the operator's own folder alone."""
    foreign = deployment.foreign_app(tmp_path / "foreign")
    subprocess.run(
        [_processes.command("flwr"), "run", str(foreign)],
        env=_processes.environment(deployment.app.home), check=True, capture_output=True,
    )  # fmt: skip
    with SuperLink(deployment.app) as superlink:
        while not (run := superlink.runs()[0])["status"].startswith("finished"):
            time.sleep(0.2)
    assert run["status"] == "finished:failed"
    assert "only the app with the digest" in run["status-details"]
    assert deployment.marks == []


def test_a_node_refuses_a_foreign_app_whatever_the_coordinator_says(deployment, tmp_path):
    with hostile_coordinator(deployment, deployment.foreign_app(tmp_path / "foreign")) as transport:
        assert "its operator has pinned another app (code 7)" in reply_to(transport, {})
    assert deployment.marks == []


def test_a_node_refuses_another_configuration_than_the_one_it_has_pinned(deployment, tmp_path):
    """Such as one that names a file of the node, or a module; neither is imported."""
    planted = tmp_path / "planted.py"
    planted.write_text(f"import pathlib\n\npathlib.Path({str(deployment.folder / 'marks' / 'own-part')!r}).touch()\n")
    config = read_app(deployment.app.path)[0].table()
    changes = [
        {"method": {"name": f"{planted}:own"}}, {"model": config["model"] | {"name": "own_parts.planted:own"}},
        {"local": config["local"] | {"epochs": 10_000}},
    ]  # fmt: skip
    with hostile_coordinator(deployment, deployment.app.path) as transport:
        for change in changes:
            facts = {**own_protocol(), "config": config | change, "num_classes": 0, "data": "shares"}
            assert "its operator has pinned an app with another configuration" in reply_to(transport, facts)
    assert deployment.marks == []


@pytest.mark.parametrize("where", ["coordinator", "node"])
def test_tasks_are_for_those_who_know_the_secret(deployment, where):
    body = AcquireTaskRequest(supported_task_types=["flwr-serverapp", "flwr-clientapp"]).SerializeToString()
    headers, url = {"content-type": "application/protobuf"}, f"{own_address(deployment, where)}/v1/runtime/acquire-task"
    answer = httpx.post(url, content=body, headers=headers, verify=False)
    assert answer.status_code == 401


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("where", ["coordinator", "node"])
@pytest.mark.parametrize("path", ["/v1/control/list-runs", "/v1/runtime/acquire-task", "/docs"])
def test_other_users_of_a_machine_are_kept_out(deployment, where, path):
    assert asked_by_nobody(deployment, where, path) == "403\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("where", ["coordinator", "node"])
def test_another_user_cannot_borrow_a_connection_of_the_own_user(deployment, where):
    """Everybody can see which connections there are; Flower's web server believes a header that names one of them."""
    _, _, address = own_address(deployment, where).partition("://")
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port))) as own:
        forwarded = ":".join(map(str, own.getsockname()))
        assert asked_by_nobody(deployment, where, "/v1/control/list-runs", forwarded) == "403\n"


def asked_by_nobody(deployment: Deployment, where: str, path: str, *forwarded: str) -> str:
    """The status that another user of the machine gets; `forwarded` is for whom this user says to speak."""
    scheme, _, address = own_address(deployment, where).partition("://")
    command = [sys.executable, "-c", _ASK, scheme, address, path, str(NOBODY), *forwarded]
    asked = subprocess.run(command, capture_output=True, text=True)
    assert not asked.returncode, asked.stderr
    return asked.stdout


def own_address(deployment: Deployment, where: str) -> str:
    """The loopback port of the SuperLink or of the SuperNode."""
    if where == "coordinator":
        return f"https://{LOOPBACK}:{deployment.record.superlink.port}"
    return f"http://{LOOPBACK}:{deployment.node_port}"


def test_the_pinned_app_runs_and_nothing_else_has_run(deployment):
    """After all attacks: planted modules in the folders of all processes have not run either."""
    assert call("run", "app", "--out", "run", "--quiet", cwd=deployment.folder) == "run\n"
    assert deployment.marks == []


def test_what_services_write_is_for_their_user_alone(deployment):
    """They were started with the usual umask, which lets everybody read."""
    state, run, node = deployment.app.local, deployment.folder / "run", deployment.node
    assert (run / "partition.json").is_file()  # of the test before, with exact class counts
    written = [state, *state.glob("state.db*"), *state.glob("logs/*"), run, *run.rglob("*"), node.path]
    written += [node.logs, *node.logs.iterdir(), node.states, *node.states.rglob("*")]
    assert [path for path in written if path.stat().st_mode & 0o077] == []
