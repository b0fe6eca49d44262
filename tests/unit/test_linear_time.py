"""Patterns that run over whole statements and messages take time in proportion to their length."""

import time

import pytest

from ducklake_orch.config.redaction import Scrubber, redact_url
from ducklake_orch.engine.scripts import classify_statement, redact

TEXTS = ["a", "SET ", "PRAGMA x ", "://", "x://a:", "a.", "$1$ ", "password = '", "EXPLAIN (ANALYZE "]


@pytest.mark.parametrize("part", TEXTS)
def test_long_texts_are_scrubbed_and_classified_soon(part: str) -> None:
    """200,000 characters took minutes to hours."""
    text = part * (200_000 // len(part))
    started = time.monotonic()
    Scrubber(["secret"])(text)
    redact(f"SELECT '{text}'", Scrubber())
    classify_statement(f"SELECT '{text}', {'a' * 200_000}", "SELECT")
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:p@ss@db/x and more", "postgresql://u:***@db/x and more"),
        ("first\nmysql://u:secret@db\nlast a@b", "first\nmysql://u:***@db\nlast a@b"),
        ("see https://host/a:b and mail me@x", "see https://host/a:b and mail me@x"),
        ("a@b s3://x:y", "a@b s3://x:y"),
    ],
)
def test_passwords_in_urls_are_masked_up_to_the_last_at_sign_of_the_line(text: str, shown: str) -> None:
    assert redact_url(text) == shown
