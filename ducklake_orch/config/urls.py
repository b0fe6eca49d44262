"""Parse and write the URL forms of catalogs and storages; every part may be percent-encoded."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode

from pydantic import SecretStr

from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.redaction import MASK
from ducklake_orch.errors import ConfigError

_HOST = re.compile(r"(\[[^\]]*\]|[\w.,%~-]*)(:\d*)?(/[^@?]*)?(\?.*)?")


class Url(NamedTuple):
    """The decoded parts of `scheme://user:password@host:port/path?query`."""

    scheme: str
    user: str | None
    password: str | None
    host: str | None
    port: int | None
    path: str
    query: dict[str, str]

    def login_fields(self) -> dict[str, Any]:
        """Return the database server fields that the URL sets."""
        fields = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return {key: value for key, value in fields.items() if value is not None} | (
            {"database": self.path} if self.path else {}
        )


def scheme_of(text: str) -> str | None:
    """Return the scheme of a URL in lower case, or None for a plain path."""
    head, colon, rest = text.partition(":")
    named = head.replace("+", "").replace("-", "").isalnum() and head[0].isalpha()
    # A single letter is a Windows drive. Without a slash, only MotherDuck's short form (`md:lake`) is a URL.
    known = rest.startswith("//") or head.lower() in {"md", "motherduck"}
    return head.lower() if colon and len(head) > 1 and named and known else None


def shown(url: str) -> str:
    """Return a URL as errors show it: without password and query, since a misspelt query key can hold a secret."""
    scheme, colon, rest = url.partition("://") if "://" in url else ("", "", url)
    login, at, rest = rest.rpartition("@")
    user, mask = re.split("[:/?]", login)[0], f":{MASK}" if ":" in login else ""
    # Text after a colon that is not a port may be a password without its `@host`.
    place = re.sub(r":(?!\d+(?:/|$)).*", f":{MASK}", rest.partition("?")[0], flags=re.DOTALL)
    return f"{scheme}{colon}{user}{mask}{at}{place}"


def split_url(text: str, *, raw_password: bool = False) -> Url:
    """Split a server or bucket URL into decoded parts.

    Args:
        text: The URL.
        raw_password: Accept unencoded `/ ? # @` in a password, as users paste them.
    """
    scheme, _, rest = text.partition("://")
    login, at, rest = _split_login(rest, raw_password)
    authority, path, query = _split_path(rest)
    host, port = _host_and_port(text, authority)
    user, colon, password = login.partition(":")
    return Url(
        scheme.lower(),
        unquote(user) if at and user else None,
        unquote(password) if colon else None,
        unquote(host) or None,
        port,
        unquote(path),
        parse_query(text, query),
    )


def _split_login(rest: str, raw_password: bool) -> tuple[str, str, str]:
    authority = re.split("[/?]", rest, maxsplit=1)[0]
    # A `user:` before the first slash that is not a `host:port` can only begin an unencoded password.
    _, colon, tail = authority.partition(":")
    if raw_password and colon and (not tail.isdigit() or "@" in authority):
        for sign in reversed(list(re.finditer("@", rest))):
            if _HOST.fullmatch(rest[sign.end() :]):
                return rest[: sign.start()], "@", rest[sign.end() :]
    login, at, _ = authority.rpartition("@")
    return login, at, rest[len(login) + len(at) :]


def _split_path(rest: str) -> tuple[str, str, str]:
    before, _, query = rest.partition("?")
    authority, _, path = before.partition("/")
    return authority, path, query


def _host_and_port(url: str, authority: str) -> tuple[str, int | None]:
    if authority.startswith("["):  # IPv6
        host, _, tail = authority[1:].partition("]")
        port = tail.removeprefix(":")
    else:
        host, _, port = authority.partition(":")
    if port and not (port.isdecimal() and port.isascii() and 0 < int(port) < 65536):
        raise ConfigError(f"The port in `{shown(url)}` is not a number from 1 to 65535.")
    return host, int(port) if port else None


def parse_query(url: str, query: str) -> dict[str, str]:
    """Parse query parameters; a repeated parameter is an error."""
    parameters: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in parameters:
            raise ConfigError(f"`{key}` is given twice in `{shown(url)}`.")
        parameters[key] = value
    return parameters


def file_path(url: str, what: str) -> tuple[str, dict[str, str]]:
    """Return path and query of `scheme:///relative` or `scheme:////absolute`; the path may be raw or encoded."""
    scheme, _, rest = url.partition("://")
    if not rest.startswith("/") or rest == "/":
        raise ConfigError(
            f"`{shown(url)}` names no {what} file.",
            remedy=f"Write {scheme}:///relative.path with three slashes, or {scheme}:////absolute/path with four.",
        )
    path, mark, query = rest[1:].rpartition("?")
    if not mark or "=" not in query or "/" in query:  # a '?' inside a raw file name
        path, query = rest[1:], ""
    return unquote(path), parse_query(url, query)


def refuse_unknown(url: str, query: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse unknown query parameters, naming the nearest known one."""
    known = set(known)
    for key in query:
        if key not in known:
            raise ConfigError(f"Unknown parameter `{key}` in `{shown(url)}`.", remedy=nearest(key, known))


def refuse_scheme(url: str, what: str, known: Iterable[str]) -> ConfigError:
    """Return the error for a URL with an unknown scheme."""
    scheme = scheme_of(url)
    if scheme is None:
        # Users try a path first, then DuckDB's own `ducklake:sqlite:…`.
        path = url.removeprefix("ducklake:").removeprefix("sqlite:")
        path = "lake.sqlite" if path in known else path
        hint = f"Write `sqlite:///{path}`. " if "sqlite" in known and re.fullmatch(r"[\w./~-]+", path) else ""
        remedy = hint + nearest("", known)
        return ConfigError(f"`{shown(url)}` is not a {what} URL: it has no scheme.", remedy=remedy)
    problem = f"The scheme `{scheme}` of `{shown(url)}` is not a {what} scheme."
    return ConfigError(problem, remedy=nearest(scheme, known))


def build_url(
    scheme: str,
    *,
    host: str = "",
    port: int | None = None,
    user: str | None = None,
    password: SecretStr | None = None,
    path: str = "",
    query: Mapping[str, Any] | None = None,
    reveal: bool = False,
) -> str:
    """Write a URL that `split_url` reads back; secrets only with `reveal`."""

    def text(value: Any) -> str:
        if isinstance(value, SecretStr):
            return value.get_secret_value() if reveal else MASK
        return str(value).lower() if isinstance(value, bool) else str(value)

    login = quote(user or "", safe="")
    if password is not None:
        login += ":" + quote(text(password), safe="*")
    pairs = {key: text(value) for key, value in (query or {}).items() if value is not None}
    return "".join(
        [
            f"{scheme}://",
            f"{login}@" if login else "",
            f"[{host}]" if ":" in host else quote(host, safe=","),
            f":{port}" if port else "",
            f"/{quote(path)}" if path or pairs else "",
            f"?{urlencode(pairs, quote_via=quote, safe='*/')}" if pairs else "",
        ]
    )
