"""Runs a test on both twins of a family of the walker."""

from importlib import import_module

import pytest

from barnabas_raftlog.records.walker.twins import IS_COMPILED

__all__ = ["on_both_twins"]


def on_both_twins(family: str) -> pytest.MarkDecorator:
    """Give a test the argument `walker`: the module `family` of each twin that is here."""
    kinds = ["compiled", "pure"] if IS_COMPILED else ["pure"]
    modules = [import_module(f"barnabas_raftlog.records.walker.{kind}.{family}") for kind in kinds]
    return pytest.mark.parametrize("walker", modules, ids=kinds)
