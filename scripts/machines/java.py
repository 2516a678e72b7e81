"""Java on this computer: the jars that Maven fetches, and programs of these scripts compiled against them.

Both are kept in the cache (`cache.py`), so that each comes once, and a program again when its source has changed.
"""

import shutil
from pathlib import Path

from .cache import NotInstalledError, fetch, kept, sum_of

__all__ = ["JAVA", "class_path", "classes", "copy_jars", "jars", "program"]

# The first compiler and the simplest collector: quick to start, which is most of what such a process does.
JAVA = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def jars(name: str, pom: Path, *options: str) -> Path:
    """Return the folder `name` of the cache, with the jars that a POM names. `options` are Maven's.

    Raises:
        NotInstalledError: there is no Java, or Maven can't fetch them.
    """
    folder = kept(name, lambda to: copy_jars(pom, to, *options))
    if shutil.which("java") is None:
        raise NotInstalledError("no java on the PATH")
    return folder


def copy_jars(pom: Path, to: Path, *options: str) -> None:
    """Have Maven copy the jars that a POM names.

    Raises:
        NotInstalledError: it can't fetch them.
    """
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={to}")
    fetch("mvn", "-q", "-B", "-f", pom, *goal, "-Dstyle.color=never", *options)


def classes(source: Path, jars: Path, *beside: Path) -> Path:
    """Return the folder with what javac makes of one file, and of what stands `beside` it, with the jars of a folder.

    Raises:
        NotInstalledError: there is no javac, or it refuses the source.
    """
    sources = (source, *beside)
    name = f"{source.stem}-{sum_of(*sources)}-{jars.name}"
    return kept(name, lambda to: fetch("javac", "-proc:none", "-cp", f"{jars}/*", "-d", to, *sources))


def class_path(source: Path, jars: Path, *beside: Path) -> str:
    """Return where Java finds one file, and what stands `beside` it, compiled, and the jars of a folder.

    Raises:
        NotInstalledError: there is no javac, or it refuses the source.
    """
    return f"{classes(source, jars, *beside)}:{jars}/*"


def program(source: Path, jars: Path, *options: str) -> list[str]:
    """Return the command that runs one file of Java, compiled. `options` are the machine's, as "-Xmx96m".

    Raises:
        NotInstalledError: there is no javac, or it refuses the source.
    """
    return [*JAVA, *options, "-cp", class_path(source, jars), source.stem]
