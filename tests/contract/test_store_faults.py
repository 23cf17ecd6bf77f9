"""Case C39: what a store's client does with every fault that a network and a cloud have, over a real S3 server."""

from __future__ import annotations

import errno
import hashlib
import itertools
import pickle
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from omniloom.errors import ObjectChangedError, StorageError
from omniloom.storage.open import open_store
from omniloom.storage.remote import RemoteStore
from tests.contract.fault_proxy import Fault, FaultProxy
from tests.contract.s3_server import ACCESS_KEY, SECRET_KEY, s3_server

PAYLOAD = bytes(range(256)) * 4096  # 1 MiB
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, int]]:
    with s3_server("shards") as place:
        yield place


@pytest.fixture
def proxy(server: tuple[str, int]) -> Iterator[FaultProxy]:
    proxy = FaultProxy(server)
    store_of(proxy).write("s3://shards/x.bin", PAYLOAD)
    proxy.seen.clear()
    yield proxy
    proxy.stop()


def store_of(proxy: FaultProxy, **more: object) -> RemoteStore:
    options = {"stall_seconds": 20.0, "retry_seconds": 60.0, **more}
    store = open_store(
        "s3://shards", endpoint=proxy.url, region="us-east-1", allow_http=True,
        access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY, **options,
    )  # fmt: skip
    assert isinstance(store, RemoteStore)
    return store


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_three_times_503_then_ok_takes_four_requests_with_jittered_waits(proxy: FaultProxy) -> None:
    proxy.plan("x.bin", *[Fault(status=503, body=SLOW_DOWN)] * 3)
    assert sha(store_of(proxy).read("s3://shards/x.bin", 0, len(PAYLOAD))) == sha(PAYLOAD)
    times = [one.at_seconds for one in proxy.seen]
    assert len(times) == 4
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    for wait, longest in zip(waits, (0.3, 0.6, 1.2), strict=True):  # half to all of it, doubled each time
        assert longest / 2 <= wait < longest + 0.5


def test_waits_are_not_alike(proxy: FaultProxy) -> None:
    store = store_of(proxy)
    proxy.plan("x.bin", *[Fault(status=429)] * 6)
    for _ in range(6):
        proxy.plan("x.bin", None)
    with ThreadPoolExecutor(6) as threads:
        assert all(threads.map(lambda _: len(store.read("s3://shards/x.bin", 0, 100)) == 100, range(6)))
    again = sorted(one.at_seconds for one in proxy.seen)[6:]
    assert len(again) == 6
    assert again[-1] - again[0] > 0.01


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=500),
        Fault(status=502),
        Fault(reset_at=0.5),
        Fault(reset_at=0.0),
        Fault(short=0.5),
        Fault(whole=True),
        Fault(stall_seconds=5.0),
    ],
    ids=["500", "502", "reset-half-body", "reset-before-body", "short-206", "200-for-a-range", "stall"],
)
def test_faults_that_pass_are_tried_again_and_the_bytes_are_right(proxy: FaultProxy, fault: Fault) -> None:
    store = store_of(proxy, stall_seconds=1.0 if fault.stall_seconds else 20.0)
    proxy.plan("x.bin", fault)
    started = time.monotonic()
    assert sha(store.read("s3://shards/x.bin", 1000, 900_000)) == sha(PAYLOAD[1000:900_000])
    assert proxy.count("x.bin") == 2
    assert time.monotonic() - started < 4.9  # a stall is given up after `stall_seconds`, not waited for


def test_expired_credentials_are_asked_for_once_more(proxy: FaultProxy) -> None:
    store = store_of(proxy)
    proxy.plan("x.bin", Fault(status=403, body=EXPIRED))
    assert store.read("s3://shards/x.bin", 0, 10) == PAYLOAD[:10]
    assert proxy.count("x.bin") == 2
    proxy.plan("x.bin", *[Fault(status=400, body=EXPIRED)] * 5)
    with pytest.raises(StorageError, match=r"expired after 2 attempts.*log in again") as caught:
        store.read("s3://shards/x.bin", 0, 10)
    assert caught.value.errno == errno.EACCES
    assert proxy.count("x.bin") == 4


@pytest.mark.parametrize(("status", "number"), [(404, errno.ENOENT), (403, errno.EACCES)])
def test_what_does_not_pass_fails_at_once(proxy: FaultProxy, status: int, number: int) -> None:
    proxy.plan("x.bin", Fault(status=status, body=b"<Error><Code>AccessDenied</Code></Error>" * (status == 403)))
    with pytest.raises(StorageError, match=r"x\.bin") as caught:
        store_of(proxy).read("s3://shards/x.bin", 0, 10)
    assert caught.value.errno == number
    assert proxy.count("x.bin") == 1


def test_an_object_that_changes_is_a_typed_error(proxy: FaultProxy) -> None:
    store = store_of(proxy)
    before = store.stat("s3://shards/x.bin")
    proxy.plan("x.bin", Fault(etag='"another"'))
    with pytest.raises(ObjectChangedError, match='"another" found') as caught:
        store.read("s3://shards/x.bin", 0, 10)
    assert pickle.loads(pickle.dumps(caught.value)).expected == before.etag
    store_of(proxy).write("s3://shards/x.bin", PAYLOAD[::-1])
    with pytest.raises(ObjectChangedError):
        store.read_ranges("s3://shards/x.bin", [(0, 10), (900_000, 900_010)])
    with pytest.raises(ObjectChangedError):
        store_of(proxy).read("s3://shards/x.bin", 0, 10, etag=before.etag)


def test_a_read_beyond_the_end_is_no_fault_of_the_network(proxy: FaultProxy) -> None:
    with pytest.raises(StorageError, match=r"found at byte 1048570, 20 expected"):
        store_of(proxy).read("s3://shards/x.bin", len(PAYLOAD) - 6, len(PAYLOAD) + 14)
    with pytest.raises(StorageError):
        store_of(proxy).read("s3://shards/x.bin", len(PAYLOAD) + 6, len(PAYLOAD) + 14)
    assert proxy.count("x.bin") == 2


def test_names_of_objects_are_not_taken_for_faults(proxy: FaultProxy) -> None:
    name = "s3://shards/404/status code: 403/timeout SlowDown.bin"
    store = store_of(proxy, retry_seconds=20.0)
    store.write(name, b"x")
    proxy.plan("SlowDown", Fault(status=503))
    assert store.read(name) == b"x"
    with pytest.raises(StorageError, match="no such object") as caught:
        store.read("s3://shards/503/timeout.bin")
    assert caught.value.errno == errno.ENOENT
    assert proxy.count("/503/timeout.bin") == 1


def test_2500_keys_are_listed_page_by_page_each_once_and_sorted(proxy: FaultProxy) -> None:
    from moto.s3.models import s3_backends  # noqa: PLC0415 - an extra of the tests

    store = store_of(proxy)
    names = [f"s3://shards/many/{number:05d}.tar" for number in range(2500)]
    bucket = s3_backends["123456789012"]["aws"]
    for name in names:
        bucket.put_object("shards", name.removeprefix("s3://shards/"), b"")
    proxy.plan("list-type", None, Fault(status=503, body=SLOW_DOWN))
    assert list(store.list("s3://shards/many")) == names
    assert 3 <= sum("list-type" in one.path for one in proxy.seen) <= 6


def test_many_ranges_are_few_requests_and_come_in_the_order_asked_for(proxy: FaultProxy) -> None:
    store = store_of(proxy, gap_bytes=1000)
    ranges = [(900_000, 900_100), (0, 50), (60, 70), (500_000, 500_001), (1_050, 1_060), (60, 70), (5, 5)]
    assert store.read_ranges("s3://shards/x.bin", ranges) == [PAYLOAD[start:stop] for start, stop in ranges]
    assert sorted(one.range or "" for one in proxy.seen) == [
        "bytes=0-1059",
        "bytes=500000-500000",
        "bytes=900000-900099",
    ]
    proxy.seen.clear()
    store = store_of(proxy, part_bytes=300_000)
    assert sha(store.read("s3://shards/x.bin", 0, len(PAYLOAD))) == sha(PAYLOAD)
    assert len(proxy.seen) == 4


def test_a_server_that_is_away_for_a_while(proxy: FaultProxy) -> None:
    store = store_of(proxy)
    assert store.read("s3://shards/x.bin", 0, 10) == PAYLOAD[:10]
    proxy.stop()
    threading.Timer(2.0, proxy.start).start()
    assert store.read("s3://shards/x.bin", 10, 20) == PAYLOAD[10:20]


def test_patience_ends(proxy: FaultProxy) -> None:
    store = store_of(proxy, retry_seconds=1.0)
    proxy.plan("x.bin", *[Fault(status=503, body=SLOW_DOWN)] * 50)
    with pytest.raises(StorageError, match=r"throttled after [2-5] attempts.*503"):
        store.read("s3://shards/x.bin", 0, 10)


def test_an_upload_that_fails_leaves_nothing(proxy: FaultProxy) -> None:
    store = store_of(proxy)

    def half_an_upload() -> None:
        with store.open_writer("s3://shards/up/big.bin") as writer:
            writer.write(bytes(12 << 20))
            raise KeyError("stopped")

    with pytest.raises(KeyError):
        half_an_upload()
    assert not store.exists("s3://shards/up/big.bin")
    proxy.plan("partNumber", None, Fault(status=503, body=SLOW_DOWN), Fault(reset_at=0.0))
    with store.open_writer("s3://shards/up/big.bin") as writer:
        writer.write(PAYLOAD * 11)
        writer.write(b"end")
    assert sha(store.read("s3://shards/up/big.bin")) == sha(PAYLOAD * 11 + b"end")
