"""A folder served over https: ``python -m tests.e2e.https_files HOST PORT FOLDER``, with ``server.pem`` from there.

``/away`` redirects, ``/large`` is larger than any seed list. `certify` makes the certificate.
"""

from __future__ import annotations

import datetime
import functools
import http.server
import ipaddress
import ssl
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certify(folder: Path, ip: str) -> Path:
    """Write ``server.pem`` (key and certificate, self-signed, for this IP) and give what clients have to trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ip)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ip))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(secret + public)
    (folder / "ca.pem").write_bytes(public)
    return folder / "ca.pem"


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files, a redirect, and something too large."""

    def do_GET(self) -> None:
        """Answer one request."""
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/list.json")
            self.end_headers()
        elif self.path == "/large":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b" " * 10_000_000)
        else:
            super().do_GET()


def main(host: str, port: int, folder: str) -> None:
    """Serve until killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Path(folder) / "server.pem")
    server = http.server.ThreadingHTTPServer((host, port), functools.partial(Handler, directory=folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print("ready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
