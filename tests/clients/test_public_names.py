"""`import barnabas_clients` offers the public names, and no others."""

import ast
from pathlib import Path

import barnabas_clients


def test_every_public_name_can_be_had() -> None:
    for name in barnabas_clients.__all__:
        assert getattr(barnabas_clients, name).__name__ == name
    assert set(barnabas_clients.__all__) <= set(dir(barnabas_clients))


def test_a_type_checker_sees_the_same_names() -> None:
    tree = ast.parse(Path(str(barnabas_clients.__file__)).read_text())
    (guarded,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(barnabas_clients.__all__)
