"""The soak's verdict: series that are flat, series that are not, and a readable plot."""

import random
from xml.etree import ElementTree as ET

import pytest
from trials.soaking.soak_judge import plot, trend

MIB = 1 << 20


def series(*, rise: float = 0.0, noise: float = 0.0, count: int = 120) -> list[tuple[float, float]]:
    """Return memory of 100 MiB over `count` samples: rising by `rise` MiB in all, with noise of `noise` MiB."""
    chance = random.Random(1)
    return [(5.0 * i, (100 + rise * i / count + chance.gauss(0, noise)) * MIB) for i in range(count)]


@pytest.mark.parametrize(
    ("rise", "noise", "is_flat"),
    [(0, 0, True), (0, 5, True), (4, 0, True), (30, 0, False), (30, 2, False), (10, 8, True), (-50, 0, True)],
)
def test_growth_is_a_rise_beyond_noise_and_what_is_allowed(rise: float, noise: float, is_flat: bool) -> None:
    found = trend("rss_bytes", series(rise=rise, noise=noise))
    assert found is not None
    assert found.is_flat is is_flat


def test_a_level_that_is_reached_while_warming_up_is_no_growth() -> None:
    samples = [(at, min(at / 200, 1.0) * 80 * MIB) for at, _ in series()]
    found = trend("rss_bytes", samples)
    assert found is not None
    assert found.is_flat


def test_a_leak_of_file_descriptors_is_growth() -> None:
    samples = [(5.0 * i, 50.0 + i / 10) for i in range(300)]
    found = trend("file_descriptors", samples)
    assert found is not None
    assert not found.is_flat


def test_few_samples_are_not_judged() -> None:
    assert trend("rss_bytes", series(count=25)) is None


def test_the_plot_has_a_line_for_each_broker_and_a_stroke_for_each_fault() -> None:
    lines = {"rss_bytes": {1: series(), 2: series(noise=2.0)}, "threads": {1: [(0.0, 7.0), (600.0, 7.0)]}}
    root = ET.fromstring(plot(lines, [10.0, 20.0]))  # noqa: S314 - our own text
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polyline")) == 3
    assert len(root.findall(f"{space}line")) == 4
