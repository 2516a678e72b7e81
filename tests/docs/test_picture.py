"""The picture of a terminal shows the README's session. That the session is real is for `test_examples.py`."""

import html
import re

from documents import pipeline
from documents.picture import PAGE, PICTURE, drawn, session
from documents.reader import page_text


def shown_in(picture: str) -> list[str]:
    """Return the words of a picture, in order, its title first."""
    return " ".join(html.unescape(found) for found in re.findall(r"<text[^>]*>([^<]*)</text>", picture)).split()


def test_the_picture_shows_the_session_of_the_readme() -> None:
    said = session(page_text(PAGE))
    assert len(said) == 5
    wanted = " ".join(f"$ {command} {output}" for command, output in said).split()
    words = shown_in(PICTURE.read_text())
    assert "".join(words) == "".join(["Barnabas", *wanted])


def test_a_picture_is_the_same_each_time_and_loads_nothing() -> None:
    said = [("true", ""), ("seq 2", "1\n2\n")]
    assert drawn(said) == drawn(said)
    assert shown_in(drawn(said)) == ["Barnabas", "$", "true", "$", "seq", "2", "1", "2"]
    assert re.findall(r"https?://[^\s\"]+", PICTURE.read_text()) == ["http://www.w3.org/2000/svg"]


def test_the_picture_of_the_pipeline_is_drawn_anew_when_it_changes() -> None:
    assert pipeline.PICTURE.read_text() == pipeline.drawn()
    assert re.findall(r"https?://[^\s\"]+", pipeline.drawn()) == ["http://www.w3.org/2000/svg"]
