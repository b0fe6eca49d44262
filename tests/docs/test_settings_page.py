"""docs/settings.md equals the page generated from the models, and its variables are valid."""

import re

from ducklake_orch.config.environment import read_environment
from ducklake_orch.errors import ConfigError
from tests.docs.settings_page import PAGE, page


def test_the_page_is_generated_from_the_models() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `python -m tests.docs.settings_page`"


def test_the_variables_on_the_page_are_known() -> None:
    variables = sorted(set(re.findall(r"<br>`(DUCKLAKE_\w+)`", page())))
    assert len(variables) > 100
    refused = []
    for variable in variables:
        try:
            read_environment({variable: "{}"})
        except ConfigError as error:
            refused += [variable] if "unknown" in error.message else []
    assert refused == []
