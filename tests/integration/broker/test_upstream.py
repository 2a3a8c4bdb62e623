"""The way from the broker to a provider: through the proxy and with the certificates that are configured."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from butlers.broker import upstream
from butlers.broker.providers import PROVIDERS
from butlers.broker.upstream import ProviderPaused, ProviderUnavailable, Upstreams
from butlers.domain.clock import SystemClock

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


@asynccontextmanager
async def listening(
    tls: ssl.SSLContext | None = None, answer: bytes = ANSWER
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that notes the head of each request and answers the same to all."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], heads


async def send(environ: dict[str, str], url: str) -> int:
    upstreams = Upstreams(SystemClock(), environ)
    try:
        answer = await upstreams.send(PROVIDERS["openai"], "POST", url, {"x": "y"}, b"{}")
        await answer.aclose()
        return answer.status_code
    finally:
        await upstreams.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream, "FIRST_DELAY_S", 0.001)


@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY"])
async def test_provider_is_asked_through_the_proxy(variable: str) -> None:
    async with listening() as (port, heads):
        environ = {variable: f"http://127.0.0.1:{port}"}
        assert await send(environ, "http://model.example/v1/responses") == 200
    assert heads[0].startswith(b"POST http://model.example/v1/responses HTTP/1.1\r\n")


async def test_local_model_server_is_not_asked_through_the_proxy() -> None:
    async with listening() as (proxy, asked), listening() as (port, heads):
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
        assert await send(environ, f"http://127.0.0.1:{port}/v1/responses") == 200
    assert (len(asked), len(heads)) == (0, 1)


@pytest.mark.parametrize(
    "direct", ["localtest.example", ".example", "one.example, localtest.example:{port}", "*"]
)
async def test_host_of_no_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, direct: str
) -> None:
    async with listening() as (proxy, asked), listening() as (port, heads):
        resolve_to_loopback(monkeypatch)
        environ = {"HTTPS_PROXY": f"http://127.0.0.1:{proxy}"}
        environ["NO_PROXY"] = direct.format(port=port)
        assert await send(environ, f"http://localtest.example:{port}/v1/responses") == 200
        assert (len(asked), len(heads)) == (0, 1)
        if direct != "*":
            assert await send(environ, f"http://model.test:{port}/v1/responses") == 200
            assert (len(asked), len(heads)) == (1, 1)


def resolve_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    known = socket.getaddrinfo

    def resolve(_host: object, *given: Any, **more: Any) -> Any:
        return known("127.0.0.1", *given, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_pause_is_kept_in_both_forms_of_retry_after(form: str) -> None:
    end = datetime.now(UTC) + timedelta(seconds=90)
    asked = "90" if form == "seconds" else format_datetime(end, usegmt=True)
    limited = b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\nConnection: close\r\n"
    async with listening(answer=limited + f"Retry-After: {asked}\r\n\r\n".encode()) as (
        port,
        heads,
    ):
        upstreams = Upstreams(SystemClock(), {})
        url = f"http://127.0.0.1:{port}/v1/responses"
        answer = await upstreams.send(PROVIDERS["openai"], "POST", url, {}, b"{}")
        await answer.aclose()
        with pytest.raises(ProviderPaused) as paused:
            await upstreams.send(PROVIDERS["openai"], "POST", url, {}, b"{}")
        await upstreams.close()
    assert answer.status_code == 429
    assert 30 < (paused.value.after_s or 0) <= 90
    assert len(heads) == 1


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"])
async def test_private_authority_is_trusted_where_it_is_named(
    tmp_path: Path, variable: str
) -> None:
    authority, server = certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server)
    async with listening(tls) as (port, heads):
        url = f"https://127.0.0.1:{port}/v1/responses"
        assert await send({variable: str(authority)}, url) == 200
        with pytest.raises(ProviderUnavailable, match="cannot be reached"):
            await send({}, url)
    assert len(heads) == 1


def certificates(folder: Path) -> tuple[Path, Path]:
    """Make an authority, and a certificate of it for 127.0.0.1 with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of ours")])
    basic = x509.BasicConstraints(ca=True, path_length=None)
    authority = signed(name, name, key, key, lambda new: new.add_extension(basic, critical=True))
    own = ec.generate_private_key(ec.SECP256R1())
    host = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a model")])
    leaf = signed(subject, name, own, key, lambda new: new.add_extension(host, critical=False))
    (folder / "authority.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    private = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    whole = leaf.public_bytes(serialization.Encoding.PEM) + private
    (folder / "server.pem").write_bytes(whole)
    return folder / "authority.pem", folder / "server.pem"


def signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extend: Callable[[x509.CertificateBuilder], x509.CertificateBuilder],
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return extend(builder).sign(signer, hashes.SHA256())
