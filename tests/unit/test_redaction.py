"""A canary password never appears in errors, their chains, representations or URLs."""

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ducklake_orch.config.catalogs import CATALOGS, MotherDuckCatalog, MySQLCatalog, PostgresCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.loading import load
from ducklake_orch.config.redaction import MASK, Scrubber, redact_url
from ducklake_orch.config.storages import STORAGES, AzureStorage, GCSStorage, R2Storage, S3Storage
from ducklake_orch.errors import ConfigError, DuckLakeOrchError, StatementError

CANARY = "cAnArY-5ecret"

MODELS: list[Any] = [
    PostgresCatalog(host="h", user="u", password=CANARY),
    MySQLCatalog(host="h", user="u", password=CANARY),
    MotherDuckCatalog(database="db", token=CANARY),
    S3Storage(bucket="b", access_key_id="k", secret_access_key=CANARY, session_token=CANARY),
    S3Storage(bucket="b", secret_parameters={"kms_key_id": CANARY}),
    R2Storage(bucket="b", account_id="a", access_key_id="k", secret_access_key=CANARY),
    GCSStorage(bucket="b", key_id="k", secret=CANARY),
    AzureStorage(container="c", account_name="a", account_key=CANARY),
    AzureStorage(container="c", connection_string=f"AccountName=a;AccountKey={CANARY}"),
    AzureStorage(container="c", account_name="a", tenant_id="t", client_id="c", client_secret=CANARY),
    LakeConfig(name="n", catalog=PostgresCatalog(host="h", password=CANARY)),
]

BAD_URLS = [
    f"postgre://u:{CANARY}@h/db",
    f"postgresql:u:{CANARY}@h/db",
    f"postgresql//u:{CANARY}@h/db",
    f"postgresql://u:{CANARY}@h:port/db",
    f"postgresql://u:{CANARY}@h:99999/db",
    f"postgresql://u:{CANARY}",
    f"postgresql://u:{CANARY}/db",
    f"postgresql://u:{CANARY}@h/db?nonsense=1",
    f"postgresql://u:{CANARY}@h/db?sslmode=1&sslmode=2",
    f"postgresql://u:{CANARY}@h/db?sslmode=nonsense",
    f"postgresql://u:p@{CANARY}/x'@h/db?nonsense=1",
    f"postgresql://u:{CANARY}\n@h/db?nonsense=1",
    f"postgresql://u:'\";\\ @/%{CANARY}@h/db?nonsense=1",
    f"postgresql://h/db?pasword={CANARY}",
    f"postgresql://h/db?password={CANARY}&pasword=x",
    f"mysql://u:{CANARY}@h/db?ssl_mode=nonsense",
    f"md:db?tokn={CANARY}",
    f"md:db?token={CANARY}&token={CANARY}",
    f"md:db?token={CANARY}&mode=nonsense",
    f"s3://b?secret_acces_key={CANARY}",
    f"s3://b?secret_access_key=x'{CANARY}&nonsense=1",
    f"s3://b?access_key_id=k&secret_access_key={CANARY}&url_style=nonsense",
    f"s3://b?secret_access_key={CANARY}",
    f"s3://b?secret_access_key={CANARY}@x&nonsense=1",
    f"s3://k:{CANARY}@b/p",
    f"s3://k:{CANARY}/x@b/p",
    f"s4://b?secret_access_key={CANARY}",
    f"az://c?account_key={CANARY}&account_name=a&provider=nonsense",
]


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yield every error of the chain, including a `__context__` that `raise … from None` hides."""
    pending, seen = [error], set[int]()
    while pending:
        current = pending.pop()
        if id(current) not in seen:
            seen.add(id(current))
            yield current
            pending += [linked for linked in (current.__cause__, current.__context__) if linked]


def visible_text(error: BaseException) -> str:
    parts = traceback.format_exception(error)
    for linked in chain(error):
        parts += [str(linked), repr(linked), repr(linked.args), repr(vars(linked))]
        parts.append(str(getattr(linked, "errors", lambda: "")()))
        if isinstance(linked, DuckLakeOrchError):
            parts += [str(linked.to_dict()), str(pickle.loads(pickle.dumps(linked)))]
    return "\n".join(parts)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
class TestModels:
    def test_a_model_does_not_show_its_password(self, model: Any, caplog: pytest.LogCaptureFixture) -> None:
        logging.getLogger("test").warning("%s %r", model, model)
        shown = [str(model), repr(model), caplog.text, str(model.model_dump()), model.model_dump_json()]
        assert CANARY not in "".join(shown)

    def test_a_url_shows_the_password_only_on_request(self, model: Any) -> None:
        if isinstance(model, LakeConfig) or getattr(model, "secret_parameters", None):
            return
        assert CANARY not in model.to_url()
        assert CANARY in model.to_url(reveal=True)

    def test_a_model_lists_its_password_for_the_scrubber(self, model: Any) -> None:
        assert any(CANARY in secret for secret in model.secret_values())

    def test_an_unrelated_validation_error_does_not_show_the_password(self, model: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            type(model)(**(dict(model) | {"nonsense": 1}))
        assert CANARY not in visible_text(caught.value)


@pytest.mark.parametrize("url", BAD_URLS)
class TestBadUrls:
    def read(self, url: str) -> Any:
        return STORAGES.read(url) if url.startswith(("s3", "s4", "az")) else CATALOGS.read(url)

    def test_the_error_of_a_bad_url_does_not_show_the_password(self, url: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.read(url)
        assert CANARY not in visible_text(caught.value)

    def test_the_error_of_a_lake_does_not_show_the_password(self, url: str) -> None:
        field = "storage" if url.startswith(("s3", "s4", "az")) else "catalog"
        with pytest.raises(ConfigError) as caught:
            LakeConfig(name="n", **{field: url})
        assert CANARY not in visible_text(caught.value)

    def test_the_error_of_a_file_or_variable_does_not_show_the_password(
        self, url: str, toml: Callable[[str], Path]
    ) -> None:
        field = "storage" if url.startswith(("s3", "s4", "az")) else "catalog"
        path = toml(f'[lakes.a]\n{field} = "${{URL}}"')
        with pytest.raises(ConfigError) as caught:
            load(path=path, environ={"URL": url})
        assert CANARY not in visible_text(caught.value)
        with pytest.raises(ConfigError) as caught:
            load(name="a", environ={f"DUCKLAKE_{field.upper()}": url})
        assert CANARY not in visible_text(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "postgres", "password": [CANARY]},
        {"type": "postgres", "password": {"x": CANARY}},
        {"type": "postgres", "password": CANARY, "port": 0},
        {"type": "postgres", "password": CANARY, "secret_name": "there"},
        {"type": "motherduck", "token": CANARY},
        {"type": "postgre", "password": CANARY},
        {"password": CANARY},
    ],
)
def test_the_error_of_a_table_does_not_show_the_password(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        LakeConfig(name="n", catalog=fields)
    assert CANARY not in visible_text(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f'[lakes.a]\ncatalog = "postgresql://u:{CANARY}@h',
        f'[lakes.a.catalog]\ntype = "postgres"\npassword = "{CANARY}"\nport = 0',
        f'[lakes.a.catalog]\ntype = "postgres"\npasword = "{CANARY}"',
        f'[lakes.a.catalog]\ntype = "postgres"\npassword = ["{CANARY}"]',
        f'[lakes.a.catalog]\ntype = "postgres"\npassword = "{CANARY}${{"',
        f'[lakes.a]\n[lakes.a.storag]\nsecret = "{CANARY}"',
    ],
)
def test_the_error_of_a_file_does_not_show_the_password(text: str, toml: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path=toml(text), environ={})
    assert CANARY not in visible_text(caught.value)


def test_the_error_of_a_file_that_is_not_utf8_does_not_show_its_text(tmp_path: Path) -> None:
    path = tmp_path / "ducklake.toml"
    path.write_bytes(f"password = '{CANARY}'\n".encode() + b"\xff")
    with pytest.raises(ConfigError) as caught:
        load(path=path, environ={})
    assert CANARY not in visible_text(caught.value)


def test_the_value_of_a_variable_used_as_a_name_is_not_shown(toml: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(path=toml('[lakes.a]\nstorage = "${SECRET}"'), environ={"SECRET": CANARY})
    assert CANARY not in visible_text(caught.value)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(st.text(alphabet="abz@:/?#%&='\"\\; \n", max_size=12))
def test_no_mangled_url_shows_the_password(noise: str) -> None:
    for url in (f"postgresql://u:{noise}{CANARY}{noise}@h/db?nonsense=1", f"postgresql://u:{CANARY}@h:{noise}x/db"):
        assert CANARY not in outcome(url)


def outcome(url: str) -> str:
    try:
        model = CATALOGS.read(url)
    except ConfigError as error:
        return visible_text(error)
    return f"{model!r} {model.to_url()}"


class TestScrubber:
    HOSTILE = "p'a\"s;s\\w @/%ü"

    def test_the_scrubber_masks_every_spelling_of_a_secret(self) -> None:
        model = PostgresCatalog(host="h", user="u", password=self.HOSTILE)
        scrub = Scrubber(model.secret_values())
        for text in (
            self.HOSTILE,
            "PASSWORD 'p''a\"s;s\\w @/%ü'",
            "password='p\\'a\"s;s\\\\w @/%ü'",
            model.to_url(reveal=True),
            repr(self.HOSTILE),
        ):
            assert MASK in scrub(text)
            assert "s;s" not in scrub(text)
            assert "s%3Bs" not in scrub(text)

    def test_the_scrubber_masks_a_secret_that_contains_another_one(self) -> None:
        assert Scrubber(["secret", "secret-longer"])("x secret-longer y") == f"x {MASK} y"

    def test_a_short_secret_does_not_mask_parts_of_words(self) -> None:
        assert Scrubber(["ab"])("grab ab cab") == f"grab {MASK} cab"

    def test_the_scrubber_masks_text_that_looks_like_a_secret(self) -> None:
        scrub = Scrubber()
        assert "hidden" not in scrub("could not connect to postgresql://u:hidden@h/db")
        assert "hidden" not in scrub("password=hidden host=h")
        assert "hidden" not in scrub("SECRET_ACCESS_KEY = 'hidden'")

    def test_the_scrubber_cleans_a_chain_of_errors_in_place(self) -> None:
        error = StatementError(f"outer {CANARY}", remedy=f"remedy {CANARY}")
        error.__context__ = ValueError(f"inner {CANARY}")
        error.__context__.add_note(f"note {CANARY}")
        error.__suppress_context__ = True
        Scrubber([CANARY]).clean(error)
        assert CANARY not in visible_text(error)
        assert error.message == f"outer {MASK}"


def test_redact_url_keeps_the_other_parts() -> None:
    assert (
        redact_url("postgresql://u:p@h:5432/db?sslmode=require") == f"postgresql://u:{MASK}@h:5432/db?sslmode=require"
    )
