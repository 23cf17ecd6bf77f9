"""Data sets in clouds other than S3, and credentials by each way of AWS: on real servers on loopback."""

from __future__ import annotations

import datetime
import http.server
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

import omniloom as ol
from omniloom.errors import StorageError
from omniloom.storage.open import open_store
from tests.contract.azure_server import ACCOUNT, AZURE_KEY, azure_server
from tests.contract.fault_proxy import FaultProxy
from tests.contract.hub_server import hub_server
from tests.contract.remote_sets import make_set, samples, upload
from tests.contract.s3_server import s3_server


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    monkeypatch.setenv("OMNILOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMNILOOM_STORAGE_ALLOW_HTTP", "1")
    monkeypatch.setenv("OMNILOOM_STORAGE_RETRY_SECONDS", "5")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def azure() -> Iterator[str]:
    with azure_server("sets") as endpoint:
        yield endpoint


def train(path: str) -> ol.Dataset:
    config = ol.WorkerConfig(rank=0, world_size=1, num_workers=0)
    return ol.get_train_dataset(path, worker_config=config, batch_size=None)


def test_a_data_set_of_azure_is_that_of_the_disk(azure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCOUNT_NAME": ACCOUNT, "ACCOUNT_KEY": AZURE_KEY, "ENDPOINT": azure}.items():
        monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
    make_set(tmp_path / "texts", "a", 60)
    upload(tmp_path / "texts", "az://sets/texts")
    assert samples(train("az://sets/texts"), 100) == samples(train(str(tmp_path / "texts")), 100)
    prepared = ol.prepare_dataset("az://sets/texts", split_ratio={"train": 1.0})
    assert prepared.samples == 60
    monkeypatch.setattr("omniloom.storage.open._OPENED", {})
    # Listings of Azure write ETags without quotes; the shards are known by them all the same.
    states = json.loads(next((tmp_path / "cache").rglob("shard-states.json")).read_text())
    assert samples(train("az://sets/texts"), 60)
    states = json.loads(max((tmp_path / "cache").rglob("shard-states.json"), key=os.path.getmtime).read_text())
    assert states["others"] == {}


def test_a_data_set_of_the_hub_is_that_of_the_disk(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="in the extra 'hub'")
    make_set(tmp_path / "hub" / "texts", "a", 60)
    program = (
        "import sys; sys.path[:0] = sys.argv[1:2]; import json; "
        "from tests.contract.test_clouds import train; from tests.contract.remote_sets import samples; "
        "print(json.dumps([s[2] for s in samples(train('hf://datasets/owner/name/texts'), 100)]))"
    )
    with hub_server(tmp_path / "hub") as (endpoint, seen):
        # In a process of its own: the hub's client reads its endpoint when it is imported.
        told = {"HF_ENDPOINT": endpoint, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path / "hf")}
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(
            [sys.executable, "-c", program, str(root)],
            env={**os.environ, **told},
            capture_output=True,
            text=True,
            check=True,
        )
    texts = json.loads(done.stdout.splitlines()[-1])
    assert texts == [sample[2] for sample in samples(train(str(tmp_path / "hub" / "texts")), 100)]
    ranges = [found for _, path, found in seen if path.endswith(".tar") and found]
    lengths = [int(last) - int(first) + 1 for first, _, last in (one[6:].partition("-") for one in ranges)]
    sizes = sum(path.stat().st_size for path in (tmp_path / "hub").rglob("*.tar"))
    assert 0 < sum(lengths) < 2 * sizes  # the ranges alone, and no blocks around them


def aws(monkeypatch: pytest.MonkeyPatch, endpoint: str, **more: str) -> None:
    for name, value in {"ENDPOINT_URL": endpoint, "REGION": "us-east-1", "DEFAULT_REGION": "us-east-1", **more}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


class _TokenService(http.server.BaseHTTPRequestHandler):
    """As much of AWS's token service as gives credentials for a web identity; each lasts for a minute."""

    asked: ClassVar[list[dict[str, str]]] = []

    def do_POST(self) -> None:
        """Credentials, numbered."""
        self.asked.append(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=1)
        given = {
            "AccessKeyId": f"KEY{len(self.asked)}",
            "SecretAccessKey": "secret",
            "SessionToken": f"token-{len(self.asked)}",
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        found = "".join(f"<{name}>{value}</{name}>" for name, value in given.items())
        body = f"<Credentials>{found}</Credentials>"
        for name in ("AssumeRoleWithWebIdentityResult", "AssumeRoleWithWebIdentityResponse"):
            body = f"<{name}>{body}</{name}>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


def test_web_identity_is_changed_for_credentials_and_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    from tests.contract.tls_front import tls_front  # noqa: PLC0415 - not without that library

    (tmp_path / "token").write_text("a-token-of-a-pod")
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _TokenService)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    behind = str(service.server_address[0]), service.server_port
    with s3_server("sets") as place, service, tls_front(behind, tmp_path) as tokens:
        proxy = FaultProxy(place)
        aws(
            monkeypatch,
            proxy.url,
            ENDPOINT_URL_STS=tokens,  # tokens are never sent without TLS
            WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"),
            ROLE_ARN="arn:aws:iam::123456789012:role/reader",
            ROLE_SESSION_NAME="omniloom",
        )
        with pytest.raises(StorageError, match=r"s3://sets/a\.bin: "):  # nobody signed the certificate
            open_store("s3://sets", retry_seconds=0).write("s3://sets/a.bin", b"x")
        store = open_store("s3://sets", client_options={"allow_invalid_certificates": True})
        store.write("s3://sets/a.bin", b"by web identity")
        time.sleep(0.2)  # the client asks no more often than ten times a second
        assert store.read("s3://sets/a.bin", 3) == b"web identity"
        service.shutdown()
        proxy.stop()
    asked = _TokenService.asked
    assert asked[0]["WebIdentityToken"] == "a-token-of-a-pod"
    assert asked[0]["RoleArn"].endswith("role/reader")
    # Credentials that end in a minute are renewed before the next request.
    assert [f"Credential=KEY{n}/" in (one.authorization or "") for n, one in enumerate(proxy.seen, 1)] == [True, True]


class _Metadata(http.server.BaseHTTPRequestHandler):
    """What a machine of EC2, or a container, asks for its credentials."""

    asked: ClassVar[list[str]] = []

    def do_PUT(self) -> None:
        """A token for this session."""
        self._say("session-token")

    def do_GET(self) -> None:
        """The role, or its credentials."""
        self.asked.append(self.path)
        if self.path.endswith("security-credentials/"):
            self._say("the-role")
            return
        ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
        given = {"AccessKeyId": "ROLEKEY", "SecretAccessKey": "secret", "Token": "t", "Code": "Success"}
        self._say(json.dumps({**given, "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ")}))

    def _say(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@pytest.mark.parametrize("place", ["machine", "container"])
def test_a_machine_and_a_container_have_credentials(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Metadata)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    told = f"http://127.0.0.1:{service.server_port}"
    _Metadata.asked.clear()
    with s3_server("sets") as server, service:
        proxy = FaultProxy(server)
        if place == "machine":
            aws(monkeypatch, proxy.url, METADATA_ENDPOINT=told)
        else:
            monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", os.devnull)
            aws(monkeypatch, proxy.url, CONTAINER_CREDENTIALS_FULL_URI=f"{told}/v1/credentials")
        store = open_store("s3://sets")
        store.write("s3://sets/a.bin", b"by role")
        assert store.read("s3://sets/a.bin") == b"by role"
        service.shutdown()
        proxy.stop()
    assert all("Credential=ROLEKEY/" in (one.authorization or "") for one in proxy.seen)
    role = "/latest/meta-data/iam/security-credentials/"
    assert _Metadata.asked == ([role, f"{role}the-role"] if place == "machine" else ["/v1/credentials"])


@pytest.mark.parametrize("way", ["keys", "role"])
def test_profiles_go_through_boto3(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files: dict[str, Any] = {
        "credentials": "[base]\naws_access_key_id = PLANTEDACCESSKEY\naws_secret_access_key = planted-secret-key\n",
        "config": "[profile base]\nregion = us-east-1\n[profile training]\nregion = us-east-1\n"
        "role_arn = arn:aws:iam::123456789012:role/reader\nsource_profile = base\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with s3_server("sets") as (host, port):
        aws(
            monkeypatch,
            f"http://{host}:{port}",
            SHARED_CREDENTIALS_FILE=str(tmp_path / "credentials"),
            CONFIG_FILE=str(tmp_path / "config"),
            PROFILE="base" if way == "keys" else "training",
        )
        store = open_store("s3://sets")
        store.write("s3://sets/a.bin", b"by profile")
        assert store.read("s3://sets/a.bin") == b"by profile"
    with pytest.raises(Exception, match="nobody"):
        open_store("s3://sets?profile=nobody").read("s3://sets/a.bin?profile=nobody")
