"""A lean S3 server over a folder: GET by range, HEAD, lists. Every answer waits for an injected latency.

`python range_server.py FOLDER LATENCY_SECONDS [BYTES_PER_SECOND]`: prints its port; the bucket of every URL is the
folder. No connection gets more bytes a second than is said; by default as many as there are. A line on its standard
input is answered with a line of JSON: requests and bytes since the last one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

FOLDER, LATENCY_SECONDS = Path(sys.argv[1]), float(sys.argv[2])
BYTES_PER_SECOND = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
PIECE_BYTES = 256 << 10
IDLE_SECONDS = 0.5
"""Connections that are idle for longer are closed: forked workers must not share one with their parent, as those of
Energon do, and it is no part of what is measured."""
counts = {"requests": 0, "bytes": 0}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection."""
    try:
        while line := await asyncio.wait_for(reader.readline(), IDLE_SECONDS):
            method, target, _ = line.decode().split()
            headers = {}
            while header := (await reader.readline()).decode().strip():
                name, _, value = header.partition(":")
                headers[name.lower()] = value.strip()
            counts["requests"] += 1
            await asyncio.sleep(LATENCY_SECONDS)
            await answer(method, target, headers, writer)
            await writer.drain()
    except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer(method: str, target: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
    """One answer."""
    parts = urlsplit(target)
    _, _, key = unquote(parts.path).lstrip("/").partition("/")
    path = FOLDER / key
    if not key or not path.is_file():
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = listing(query) if "list-type" in query else b"<Error><Code>NoSuchKey</Code></Error>"
        head = f"HTTP/1.1 {'200 OK' if 'list-type' in query else '404 Not Found'}\r\nContent-Type: application/xml\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + (body if method != "HEAD" else b""))
        return
    size = path.stat().st_size
    start, stop, status, extra = 0, size, "200 OK", ""
    if "range" in headers:
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        start, stop = int(first), min(size, int(last) + 1) if last else size
        status, extra = "206 Partial Content", f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n"
    tag = tag_of(path)
    head = (
        f'HTTP/1.1 {status}\r\nETag: "{tag}"\r\nAccept-Ranges: bytes\r\nContent-Length: {stop - start}\r\n{extra}'
        "Last-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\n\r\n"
    )
    writer.write(head.encode())
    if method == "HEAD":
        return
    await writer.drain()
    with path.open("rb") as file:
        await send(writer, file, start, stop)


async def send(writer: asyncio.StreamWriter, file: BinaryIO, start: int, stop: int) -> None:
    """A part of a file, no quicker than the connection is allowed to be."""
    loop = asyncio.get_running_loop()
    began, first = loop.time(), start
    while start < stop:
        length = min(PIECE_BYTES, stop - start) if BYTES_PER_SECOND else stop - start
        await loop.sendfile(writer.transport, file, start, length)
        counts["bytes"] += length
        start += length
        if BYTES_PER_SECOND:
            await asyncio.sleep(max(0.0, began + (start - first) / BYTES_PER_SECOND - loop.time()))


def tag_of(path: Path) -> str:
    """The ETag of a file."""
    return hashlib.md5(f"{path} {path.stat().st_mtime_ns}".encode()).hexdigest()


def listing(query: dict[str, str]) -> bytes:
    """All keys below a prefix, on one page."""
    prefix = query.get("prefix", "")
    delimiter = query.get("delimiter", "")
    below = FOLDER / prefix.rpartition("/")[0]
    found = list((below.iterdir() if delimiter else below.rglob("*")) if below.is_dir() else ())
    keys = sorted(str(path.relative_to(FOLDER)) for path in found if path.is_file())
    keys = [key for key in keys if key.startswith(prefix)]
    folders = sorted(f"{path.relative_to(FOLDER)}/" for path in found if path.is_dir())
    folders = [folder for folder in folders if folder.startswith(prefix)]
    shown = [key for key in keys if not delimiter or "/" not in key[len(prefix) :]]
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
        f'<ETag>"{tag_of(FOLDER / key)}"</ETag>'
        f"<Size>{(FOLDER / key).stat().st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        for key in shown
    )
    common = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders)
    return (
        '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name>'
        f"<Prefix>{escape(prefix)}</Prefix><KeyCount>{len(shown)}</KeyCount><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{entries}{common if delimiter else ''}</ListBucketResult>"
    ).encode()


async def tell() -> None:
    """Answer lines of the standard input with the counts."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        print(json.dumps(counts), flush=True)
        counts.update(requests=0, bytes=0)
    os._exit(0)


async def main() -> None:
    """Listen until the standard input closes."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 20)
    print(server.sockets[0].getsockname()[1], flush=True)
    await tell()


asyncio.run(main())
