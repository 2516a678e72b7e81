"""Searches inputs of one target with atheris, for a time; coverage leads the search.

    python -m fuzzing.decoders.one_target TARGET SECONDS FOLDER

`scripts/fuzz` runs it. FOLDER has a folder `inputs`, where the search begins and where it puts inputs worth keeping;
inputs that break the target go into FOLDER itself. The generated codecs are no modules, so they are instrumented one by
one.

It ends after `RUNS_MAX` inputs also when there is time left: atheris' code for comparisons loses about a kilobyte for
each input of some targets, which none of them does without it.
"""

import contextlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["barnabas_raftlog", "barnabas_clients", "barnabas_metadata_quorum"]):
    from barnabas_clients.protocol.registry import APIS
    from barnabas_raftlog.errors import MalformedMessageError

    from .targets import INPUT_BYTES_MAX, TARGETS, Meter

TIMEOUT_S = 30
RUNS_MAX = 1_000_000
RSS_MIB_MAX = 2_048


def instrument_codecs() -> None:
    """Compile every decoder, and let atheris see the way through it."""
    for api in APIS.values():
        for kind in (api.request, api.response):
            for version in kind.versions:
                with contextlib.suppress(MalformedMessageError):
                    kind.decode(b"", version)
                with contextlib.suppress(MalformedMessageError):
                    next(kind.decode_in_steps(b"", version, elements_max=1), None)
            for known in (kind._decoders, kind._step_decoders):
                for decode in known.values():
                    atheris.instrument_func(decode)


def main() -> None:
    target = sys.argv[1]
    seconds = int(sys.argv[2])
    folder = Path(sys.argv[3])
    instrument_codecs()
    limits = [f"-max_total_time={seconds}", f"-runs={RUNS_MAX}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={TIMEOUT_S}"]
    options = [*limits, f"-rss_limit_mb={RSS_MIB_MAX}", f"-artifact_prefix={folder}/", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, str(folder / "inputs")], Meter(TARGETS[target]))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
