"""TLS before a server of plain HTTP on loopback, by a certificate that nobody signed."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import shutil
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


class _Front(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, behind: tuple[str, int], context: ssl.SSLContext) -> None:
        self.behind, self.context = behind, context
        super().__init__(("127.0.0.1", 0), _Connection)

    def handle_error(self, *_: Any) -> None:
        """A client that does not trust the certificate hangs up."""


class _Connection(socketserver.BaseRequestHandler):
    server: _Front

    def handle(self) -> None:
        """Carry bytes both ways until either side ends."""
        with (
            self.server.context.wrap_socket(self.request, server_side=True) as near,
            socket.create_connection(self.server.behind) as far,
        ):
            back = threading.Thread(target=_carry, args=(far, near), daemon=True)
            back.start()
            _carry(near, far)
            back.join(5)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):
        shutil.copyfileobj(source.makefile("rb", buffering=0), target.makefile("wb", buffering=0))
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def tls_front(behind: tuple[str, int], folder: Path) -> Iterator[str]:
    """Endpoint that speaks TLS and hands everything on."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    with _Front(behind, context) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"https://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
