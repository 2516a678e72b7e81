"""docs/operations/configure.md says what the code does."""

import re
from pathlib import Path

from barnabas_broker.config.broker import settings
from barnabas_broker.config.dynamic import DYNAMIC

PAGE = (Path(__file__).parents[3] / "docs" / "operations" / "configure.md").read_text()


def test_every_setting_is_there_with_its_default_and_no_other() -> None:
    table = PAGE.partition("| setting | default | |")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `([a-z0-9.]+)` \| ([^|]*) \|", table, re.MULTILINE))
    for setting in settings():
        default = "required" if setting.required else str(setting.default)
        assert rows[setting.name].strip() == (default.lower() if setting.type == "boolean" else default)
        assert f"| {setting.doc} |" in PAGE
    assert rows.keys() == {setting.name for setting in settings()}


def test_the_settings_that_change_while_brokers_run_are_named() -> None:
    section = PAGE.partition("\n## Settings that change while brokers run\n")[2].partition("\n## ")[0]
    listed = section.partition("These can be set:")[2].partition("A broker refuses all others")[0]
    assert set(re.findall(r"`([a-z0-9.]+)`", listed)) - {"flush.mode"} == DYNAMIC
