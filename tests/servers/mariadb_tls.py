"""A MariaDB server that encrypts connections, with certificates that the test makes."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.servers.base import LOOPBACK
from tests.servers.mariadb import MariaDBServer


class TlsMariaDBServer(MariaDBServer):
    """A MariaDB server with a certificate for the loopback address, from the authority in `ca.pem` of its folder."""

    name = "mariadb-tls"

    @classmethod
    def more_options(cls, folder: Path) -> list[str]:
        make_certificates(folder, "ca", ["server", "client"])
        return [
            f"--ssl-{name}={folder / file}.pem"
            for name, file in (("ca", "ca"), ("cert", "server"), ("key", "server-key"))
        ]


def make_certificates(folder: Path, authority: str, names: list[str]) -> None:
    """Make a certificate authority, and certificates that it has signed; each with its key in `<name>-key.pem`."""
    issuer_key, issuer = _write(folder, authority, None, None)
    for name in names:
        _write(folder, name, issuer_key, issuer)


def _write(
    folder: Path, name: str, issuer_key: ec.EllipticCurvePrivateKey | None, issuer: x509.Certificate | None
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {name}")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(LOOPBACK))]), critical=False)
        .sign(issuer_key or key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
    (folder / f"{name}-key.pem").write_bytes(key.private_bytes(pem, *plain))
    return key, certificate
