"""The shape of the code, checked like any other property. See docs/architecture.md."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {  # package: what it may import of the others. Acyclic, read top-down.
    "barnabas_raftlog": (),
    "barnabas_clients": (
        "barnabas_raftlog.errors",
        "barnabas_raftlog.printable",
        "barnabas_raftlog.wire",
        "barnabas_raftlog.records",
        "barnabas_raftlog.tasks",
        "barnabas_raftlog.version",
    ),
    "barnabas_metadata_quorum": ("barnabas_raftlog",),
    "barnabas_broker": (
        "barnabas_raftlog",
        "barnabas_metadata_quorum",
        "barnabas_clients.protocol",
        "barnabas_clients.assignors",
    ),
    "barnabas_spark": (
        "barnabas_clients",
        "barnabas_raftlog.errors",
        "barnabas_raftlog.memory",
        "barnabas_raftlog.printable",
        "barnabas_raftlog.records",
        "barnabas_raftlog.wire.crc32c",
    ),
    "pyspark_barnabas": ("barnabas_spark",),
    "barnabas": ("barnabas_clients", "barnabas_broker.testing"),
}
ORDER = {  # folder: what is in it, in floors; each may import what stands on a lower one, and nothing beside it
    "barnabas_raftlog": (
        "alarm callbacks errors foreign_protocols loop_meter memory printable steps tasks unpacking version"
        " < raft wire < records < links log < multiraft < catch_up"
    ),
    "barnabas_raftlog.log": (
        "checkpoint errors hampered machine state_file < removals segments < journal transfer < hard_states shared"
        " < recovery replica < checkpointing scrub < storage"
    ),
    "barnabas_raftlog.log.replica": (
        "compaction pending retention < state < checking measuring write_behind < members reading"
        " < ages appending kept_state timestamps < installing shortening < completions lending < compacting"
        " < replica_log"
    ),
    "barnabas_metadata_quorum": (
        "answer_limit config_values pulse topic_names < resource_configs topic_configs < image"
        " < controller leaders replica snapshot_store"
        " < active_controller descriptions founding registration submission voters < service"
    ),
    "barnabas_broker": (
        "access config history status timing < environment local_cluster partition process < leadership < replicas"
        " < coordinators < server < node < main testing < cli pytest_plugin"
    ),
    "barnabas_broker.coordinators": "patterns room runtime producer_ids < groups < transactions",
    "barnabas_broker.coordinators.groups.consumer.assignors": "roster < balance ranges < uniform < built_in",
    "barnabas_broker.coordinators.runtime": (
        "append_errors catching_up contracts shard_host < batch standby under_way"
        " < shard < rewriting < coordinator < homes"
    ),
    "barnabas_broker.coordinators.transactions": (
        "state_machine < marker_queues outcome_messages questions room table topic"
        " < asking hosted_transaction markers whereabouts < doubts shard < additions expiry outcomes < coordinator"
    ),
    "barnabas_broker.server": (
        "cold_window fetch_sessions offer telemetry transient_bytes < connections < context request_log"
        " < handlers live_settings < dispatch"
    ),
    "barnabas_broker.cli": (
        "near_names output quick_start < errors wording"
        " < addresses config_files legal_names limits profiles times waiting"
        " < admin connecting streams < commands < parser < entry"
    ),
    "barnabas_clients": (
        "arguments backoff chance errors protocol topic_partition < assignors place_arguments wording < cluster"
        " < groups < producer < admin < consumer"
    ),
    "barnabas_clients.producer.transactions": "meanings requests situations < state_machine",
    "barnabas_spark": (
        "garbage options shipping < clusters planning < reading < schemas writing < snapshots streaming < source lake"
        " < latest windows < jobs sinks"
    ),
    "barnabas_spark.snapshots": "vector < store",
    "barnabas_spark.jobs": (
        "app output session stopping < errors executors lakes positions < archiving audit backfill options"
        " < auditing backfilling compacting windowing < commands < cli < __main__"
    ),
    "barnabas_spark.jobs.audit": (
        "timeline units < commits fragments < files topics < evidence merging < findings gathering < summary"
        " < plots tables < report"
    ),
    "barnabas_spark.jobs.backfill": "marker rows < target < writing",
    "barnabas_spark.lake": (
        "checksums layout ranges < table < schemas store rounds < committing logs object_store < opening < values"
        " < formats writing < archive compaction read < orphans tasks"
    ),
    "barnabas_spark.latest": "choosing < read writing < archived merging run < tasks",
    "barnabas_spark.windows": "progress sink < query",
    "barnabas_spark.lake.formats": (
        "delta_options delta_rules errors vectors manifests < delta_entries delta_reading iceberg_reading parquet"
        " < delta_log iceberg < delta < choosing"
    ),
    "barnabas_spark.lake.values": "columns decoding evolution rejects texts < evolving",
    "barnabas_spark.sinks": "delta",
    "barnabas_spark.streaming": "byte_limit offsets pace < continuation < ownership starting watch < stream < reader",
    "barnabas_spark.options": "names < connections tables values < reads writes < streams",
    "barnabas_spark.writing": (
        "exactly_once layout partitioning rows < outcome producers < columns joining < batches destinations < task"
        " < writers"
    ),
    "barnabas_spark.writing.exactly_once": (
        "decisions names < vacancies < coordinators plan < settling < requests < starting"
    ),
    "barnabas_spark.planning": "limits plan < sizes splitting < packing",
    "barnabas_spark.reading": (
        "aborted < fetching json_records measuring snapshot < json_blocks < values < arrow < reader"
    ),
}
USES_CLIENTS = ("barnabas_broker.cli", "barnabas_broker.testing")  # a command line is a client like any other
PURE_PARTS = {  # folder: what is pure in it, as a module or as a folder with all that is in it
    "barnabas_raftlog": "wire records raft errors printable foreign_protocols loop_meter steps unpacking version",
    "barnabas_raftlog.links": "raft_frames framing handshake byte_counts liveness digests",
    "barnabas_raftlog.catch_up": "messages rate",
    "barnabas_raftlog.multiraft": "candidacies deadlines stats strays",
    "barnabas_raftlog.log": "checkpoint hampered state_file machine.disk_errors transfer.manifest",
    "barnabas_raftlog.log.segments": "check frame_walk index_search leader_epochs offset_index",
    "barnabas_raftlog.log.journal": "entries format scan",
    "barnabas_raftlog.log.replica": "compaction pending retention",
    "barnabas_raftlog.log.recovery": "forgery plan",
    "barnabas_metadata_quorum": (
        "answer_limit config_values controller image descriptions replica resource_configs"
        " topic_configs topic_names leaders.table"
    ),
    "barnabas_metadata_quorum.voters": "membership steps",
    "barnabas_clients": "protocol assignors arguments backoff errors place_arguments topic_partition wording",
    "barnabas_clients.cluster": "bootstrap changes features framing topic_view trouble view",
    "barnabas_clients.producer": (
        "accumulator encoded exchange metrics partitioner sequences settings topic_queues transaction_numbers"
        " transactions"
    ),
    "barnabas_clients.consumer": (
        "decoder errors fetch_plan fetch_session metrics partition_queue record runs settings subscription topic_places"
    ),
    "barnabas_clients.groups": "consumer_member handler member offsets_to_send user_time",
    "barnabas_clients.admin": "offset_resets snapshot_ranges values",
    "barnabas_broker": (
        "access config history coordinators.patterns coordinators.room coordinators.groups.consumer"
        " coordinators.groups.state_machine coordinators.transactions.state_machine"
    ),
    "barnabas_broker.coordinators.transactions": "marker_queues outcome_messages room",
    "barnabas_broker.coordinators.runtime": "append_errors batch contracts under_way",
    "barnabas_broker.partition": (
        "aborted_index log_starts producer_state read_replicas record_rules saved_state transactions verifications"
        " waiters"
    ),
    "barnabas_broker.server": "cold_window offer transient_bytes",
    "barnabas_broker.leadership": "absences cut_off",
    "barnabas_broker.server.telemetry": "instances metrics_data subscriptions",
    "barnabas_broker.cli": (
        "near_names streams.formats streams.lines commands.bench_report commands.reassignment_plan"
        " commands.administration.config_values wording"
    ),
    "barnabas_broker.process": "descriptors",
    "barnabas_broker.status": "packing verdict",
    "barnabas_broker.timing": "deadlines pieces",
    "barnabas_spark": (
        "options planning reading.aborted snapshots.vector windows.progress writing.exactly_once.decisions"
        " writing.exactly_once.names writing.exactly_once.plan writing.exactly_once.vacancies"
        " writing.exactly_once.settling writing.layout writing.partitioning"
    ),
    "barnabas_spark.lake": (
        "formats.delta_entries formats.delta_options formats.manifests formats.vectors ranges rounds table"
        " values.evolution values.rejects"
    ),
    "barnabas_spark.streaming": "offsets continuation pace starting",
    "barnabas_spark.jobs.audit": "timeline units",
    "barnabas_spark.jobs.backfill": "marker",
}
PURE = tuple(f"{folder}.{name}" for folder, names in PURE_PARTS.items() for name in names.split())
PURE_STDLIB = {
    *("errno", "base64"),
    *("__future__", "array", "bisect", "collections", "contextlib", "dataclasses", "difflib", "enum", "functools"),
    *(
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "re",
        "string",
        "struct",
        "sys",
        "tomllib",
        "types",
        "typing",
        "unicodedata",
        "uuid",
        "zlib",
    ),
    *("operator", "hashlib", "hmac", "keyword", "textwrap", "abc", "copy"),
}
PURE_LIBRARIES = {
    *("msgpack", "msgspec", "fastcrc", "google_crc32c", "numpy"),
    *("cramjam", "lz4", "zstandard", "zlib_ng"),
}
IMPURE = {"asyncio", "socket", "time", "random", "logging", "threading", "subprocess", "uvloop"}
CALLS_MANY = ("barnabas_broker", "barnabas_metadata_quorum", "barnabas_raftlog")
CALLS_IN_A_LOOP = {  # module and function of a loop that may call by itself, and why
    ("barnabas_raftlog.callbacks", "call_each"): "it is what the others use",
    ("barnabas_raftlog.log.journal.commit_queue", "_written"): "storage is one thing: a bug in it ends the process",
    ("barnabas_raftlog.log.segments.write_queue", "_carried_out"): "likewise",
    ("barnabas_raftlog.log.segments.write_queue", "store"): "two halves of one job",
    (
        "barnabas_raftlog.multiraft.driver",
        "_tell_notices",
    ): "of one group, in order; what raises in a drive ends the node",
    ("barnabas_broker.history.transaction_rules", "commit"): "of one history: a bug in its judge ends the judging",
    ("barnabas_raftlog.catch_up.repair", "__call__"): "two ways to the same, the second if the first fails",
}
SOURCE_FOLDERS = ("raftlog", "metadata_quorum", "broker", "clients", "spark", "tests", "scripts")
FILES = sorted(path for name in MAY_IMPORT for path in ROOT.glob(f"*/{name}/**/*.py"))
SOURCES = sorted(path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*.py"))
SHELL_FOLDERS = {  # that hold pure modules beside their shell: their __init__ holds a docstring only
    ".".join(parts[:count]) for parts in (name.split(".") for name in PURE) for count in range(1, len(parts))
}
FUNCTION_LINES_MAX = 60
PLACES = 30  # attributes of an instance that CPython keeps in place
ENTRIES_MAX = 20  # of a folder: what a reader takes in at a glance
ONE_FILE_AN_API = {"broker/barnabas_broker/server/handlers", "clients/barnabas_clients/protocol"}
FOLDERS = ("raftlog", "metadata_quorum", "broker", "clients", "spark", "tests", "docs", "scripts")


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts[1:]).removesuffix(".__init__")


MODULES = {dotted(path) for path in FILES}


def within(module: str, names: tuple[str, ...] | set[str]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in names)


def imports(path: Path) -> Iterator[str]:
    """Yield absolute names. Parent-relative imports do not occur: ruff bans them (TID252)."""
    package = dotted(path if path.stem == "__init__" else path.parent / "__init__.py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = f"{package}.{node.module or ''}".rstrip(".") if node.level else str(node.module)
            named = {f"{base}.{alias.name}" for alias in node.names} & MODULES
            yield from named or (base,)


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_file_keeps_to_its_layer(path: Path) -> None:
    module, names = dotted(path), set(imports(path))
    package = module.partition(".")[0]
    ours = {name for name in names if name.startswith("barnabas_") or within(name, {"barnabas"})}
    allowed = (package, *MAY_IMPORT[package])
    if module.startswith(USES_CLIENTS):
        allowed += ("barnabas_clients",)
    assert not {name for name in ours if not within(name, allowed)}
    if within(module, PURE):
        impure = {
            name
            for name in names
            if not within(name, PURE)
            and name not in SHELL_FOLDERS
            and name.partition(".")[0] not in PURE_STDLIB | PURE_LIBRARIES
        }
        assert not impure, "a pure module gets time, chance and I/O as arguments"


def edges_within(folder: str) -> set[tuple[str, str]]:
    """Return who imports whom among the modules and folders of one folder, imports for types included."""
    return {
        (importer, imported)
        for path in FILES
        if within(module := dotted(path), {folder}) and module != folder
        for name in imports(path)
        if within(name, {folder}) and name != folder
        if (importer := entry_of(module, folder)) != (imported := entry_of(name, folder))
    }


def entry_of(module: str, folder: str) -> str:
    return module.removeprefix(f"{folder}.").partition(".")[0]


@pytest.mark.parametrize("folder", ORDER)
def test_imports_of_a_folder_go_down_its_floors(folder: str) -> None:
    floors = [floor.split() for floor in ORDER[folder].split(" < ")]
    floor_of = {name: number for number, names in enumerate(floors) for name in names}
    there = {entry_of(name, folder) for name in map(dotted, FILES) if within(name, {folder}) and name != folder}
    assert floor_of.keys() == there
    assert not {edge for edge in edges_within(folder) if floor_of[edge[0]] <= floor_of[edge[1]]}


@pytest.mark.parametrize("folder", sorted({dotted(path) for path in FILES if path.stem == "__init__"}))
def test_no_import_goes_round_in_a_circle(folder: str) -> None:
    """Not among the modules of a folder, nor between folders; imports for types alone count as well."""
    edges = edges_within(folder)
    while ends := {importer for importer, _ in edges} - {imported for _, imported in edges}:
        edges = {edge for edge in edges if edge[0] not in ends}
    assert not edges


def test_the_coordinator_runtime_knows_none_of_its_users() -> None:
    """It serves groups now, and transactional ids and share groups later: what records mean is the coordinators' own.

    A producer's transaction in one partition is a thing of the log, which any coordinator may meet with.
    """
    runtime = {"barnabas_broker.coordinators.runtime"}
    paths = [path for path in FILES if within(dotted(path), runtime)]
    named = {name for path in paths for name in imports(path) if within(name, {"barnabas_broker.coordinators"})}
    assert not {name for name in named if not within(name, runtime)}
    of_users = re.compile(r"\b(groups?|members?|heartbeats?|transactional.ids?|__\w+_(offsets|state))\b")
    text = "".join(path.read_text() for path in paths).replace("partition.group.", "")  # the Raft group
    assert not of_users.findall(text)


def test_every_named_pure_module_exists() -> None:
    modules = {dotted(path) for path in FILES}
    assert not {name for name in PURE if name not in modules}


def test_pure_modules_load_only_pure_modules() -> None:
    """Also through `__init__.py` files, which the check above cannot see run."""
    modules = sorted(module for module in map(dotted, FILES) if within(module, PURE))
    code = (
        "import importlib, sys\n"
        "libraries = ['msgspec', 'msgspec.json', 'msgpack', 'fastcrc', 'cramjam', 'numpy']\n"
        "for name in libraries: importlib.import_module(name)\n"
        "before = set(sys.modules)\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "print(*(set(sys.modules) - before))"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, *modules]
    loaded = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.startswith("barnabas_")}
    assert not {name for name in ours if not within(name, PURE) and name not in SHELL_FOLDERS}
    assert not IMPURE & set(loaded)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short_enough_to_read(path: Path) -> None:
    """A file is one concern, however long; what a reader holds in mind at once is a function."""
    assert not [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and function_lines(node) > FUNCTION_LINES_MAX
    ]


def attributes(node: ast.ClassDef) -> set[str]:
    """Return what methods of a class assign to themselves, nested classes included."""
    stored = (one for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return {one.attr for one in stored if isinstance(one.value, ast.Name) and one.value.id == "self"}


def has_slots(node: ast.ClassDef) -> bool:
    targets = (target for part in node.body if isinstance(part, ast.Assign) for target in part.targets)
    return any(isinstance(target, ast.Name) and target.id == "__slots__" for target in targets)


@pytest.mark.parametrize("path", FILES, ids=dotted)
def test_classes_with_many_attributes_have_slots(path: Path) -> None:
    """CPython looks each attribute up in a dict where an instance has more: 3 % of a processor for one such class."""
    classes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)]
    assert [one.name for one in classes if len(attributes(one)) > PLACES and not has_slots(one)] == []


def loops_without_call_each(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield function and line of each loop that calls what it goes through, or a callback that hangs on that."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for function in functions:
        for loop in (node for node in ast.walk(function) if isinstance(node, ast.For)):
            targets = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
            for call in (node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.Call)):
                called = call.func
                if isinstance(called, ast.Attribute) and (called.attr.startswith("on_") or called.attr == "abandon"):
                    called = called.value
                if isinstance(called, ast.Name) and called.id in targets:
                    yield function.name, call.lineno


@pytest.mark.parametrize("path", [path for path in FILES if within(dotted(path), CALLS_MANY)], ids=dotted)
def test_whoever_calls_many_loses_none_behind_one_that_raises(path: Path) -> None:
    loops = loops_without_call_each(ast.parse(path.read_text()))
    found = [f"{path.name}:{line} in {name}" for name, line in loops if (dotted(path), name) not in CALLS_IN_A_LOOP]
    assert not found, "use barnabas_raftlog.callbacks.call_each, or say in CALLS_IN_A_LOOP why not"


def test_loops_that_call_are_found() -> None:
    loops = """
def fire(self):
    for callback in self.callbacks:
        callback()
def wake(self):
    for name, (number, waiter) in self.waiters:
        if number:
            waiter.on_woken(name)
def harmless(self):
    for waiter in self.waiters:
        self.on_woken(waiter)
        waiter.close()
"""
    assert list(loops_without_call_each(ast.parse(loops))) == [("fire", 4), ("wake", 8)]


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def test_the_broker_process_starts_without_the_command_line() -> None:
    """Three brokers start on two cores within two seconds only if none of them loads what it does not use."""
    parsing = "barnabas_broker.main.parse(['--config', 'broker.toml', '--ready-fd', '3'])"
    code = f"import sys, barnabas_broker.main; {parsing}; print(*sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    heavy = {"argparse", "shutil", "difflib", "bz2", "lzma"}  # together 2 MiB in each broker
    heavy |= {"typer", "click", "rich", "numpy", "pyarrow", "pyspark", "starlette"}
    heavy |= {"cramjam", "lz4", "zstandard", "zlib_ng"}  # loaded when the first compressed batch is looked into
    assert not heavy & set(loaded.split())


def test_embedding_the_clients_pulls_in_neither_spark_nor_a_server() -> None:
    code = "import sys, barnabas_clients as b; b.Producer, b.Consumer, b.Admin; print(*sys.modules)"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    loaded = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert not {"pyspark", "pyarrow", "numpy", "typer", "rich", "barnabas_broker", "starlette"} & set(loaded.split())


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_has_a_readme(folder: str) -> None:
    assert (ROOT / folder / "README.md").read_text().strip()


def shown_in(folder: Path) -> set[str]:
    """Return the entries of a folder but what compilers make of them, types of such, and folders of nothing else."""
    files = [
        file.relative_to(folder)
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts and file.suffix not in {".so", ".pyd"}
    ]
    shown = {file.parts[0] for file in files if not file.parts[0].startswith(".")}
    return shown - {f"{Path(name).stem}.pyi" for name in shown if name.endswith(".pyx")}


def test_folders_can_be_taken_in_at_a_glance() -> None:
    folders = [folder for name in SOURCE_FOLDERS for folder in (ROOT / name, *(ROOT / name).rglob("*/"))]
    counts = {str(folder.relative_to(ROOT)): len(shown_in(folder)) for folder in folders}
    assert not {name: count for name, count in counts.items() if count > ENTRIES_MAX and name not in ONE_FILE_AN_API}


def test_no_brokers_run_in_this_process_beside_the_tests_of_other_folders() -> None:
    """Where a test replaces a method of a class, theirs would be replaced too."""
    found = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in SOURCES
        if path.is_relative_to(ROOT / "tests")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        and any("scope='session'" in ast.unparse(one) for one in node.decorator_list)
        and "RunningCluster" in ast.unparse(node)
    ]
    assert not found


def test_what_calculates_starts_no_brokers(request: pytest.FixtureRequest) -> None:
    """Else two workers start some at the same time, and one's elections wait for the other's processor."""
    tests = ROOT / "tests"
    division = request.config.pluginmanager.get_plugin(str(tests / "conftest.py"))
    assert division is not None
    assert all((tests / name).exists() for name in (*division.CALCULATING, *division.STARTING_BROKERS))
    starting = re.compile(r"\b(RunningCluster|cluster_handle|barnabas_broker\.testing)\b")
    for path in sorted(tests.rglob("test_*.py")):
        part = path.relative_to(tests)
        if division.piece(part) == str(part) and path != Path(__file__):
            assert not starting.search(path.read_text()), f"{part} starts brokers, and stands among what calculates"


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    clients = tomllib.loads((ROOT / "clients" / "pyproject.toml").read_text())
    wanted = [
        *clients["project"]["dependencies"],
        *project["project"]["dependencies"],
        *(one for extra in project["project"]["optional-dependencies"].values() for one in extra),
        *project["dependency-groups"]["dev"],
    ]
    names = {re.split(r"[<>=;\[ ]", requirement)[0] for requirement in wanted} - {
        clients["project"]["name"],
        project["project"]["name"],
    }
    document = (ROOT / "docs" / "dependencies.md").read_text()
    assert not {name for name in names if f"| {name} |" not in document}


def test_links_in_the_documents_lead_somewhere() -> None:
    pages = (*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")))
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert not broken


def walks() -> Iterator[tuple[list[Path], str]]:
    """Yield the stops of each walk in docs/architecture.md, and the function at its end."""
    section = (ROOT / "docs" / "architecture.md").read_text().partition("## Where is ...?")[2].partition("\n## ")[0]
    for row in section.splitlines():
        if stops := re.findall(r"\]\(\.\./([^)]+)\)", row):
            yield [ROOT / stop for stop in stops], row.rstrip("| ").rpartition("`")[0].rpartition("`")[2]


def is_named_in(page: Path, stop: Path) -> bool:
    """Tell whether a page names a file, or the folder whose README it is."""
    names = [f"{stop.parent.name}/"] if stop.name == "README.md" else [stop.name, f"`{stop.stem}`"]
    return any(name in page.read_text() for name in names)


def definitions(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            inside = node.body if isinstance(node, ast.ClassDef) else []
            kinds = ast.FunctionDef | ast.AsyncFunctionDef
            yield from (f"{node.name}.{one.name}" for one in inside if isinstance(one, kinds))


def test_a_reader_finds_what_happens_where() -> None:
    found = list(walks())
    assert len(found) >= 7
    for stops, function in found:
        assert stops[0] == ROOT / "README.md"
        assert [(page, stop) for page, stop in pairwise(stops) if not is_named_in(page, stop)] == []
        assert function in set(definitions(stops[-1])), f"{stops[-1].name} has no {function}"


def test_every_risk_names_a_story_or_a_scenario_that_exists() -> None:
    document = (ROOT / "docs" / "testing.md").read_text()
    table = document.partition("## Risks")[2].partition("\n## ")[0]
    rows = [row for row in table.splitlines() if row.startswith("|")][2:]
    assert rows
    named = {name for row in rows for name in re.findall(r"`(tests/[^`]+)`", row)}
    assert all("`tests/" in row for row in rows), "a risk without a run that shows it"
    assert not {name for name in named if not (ROOT / name).is_file()}
    tests = ROOT / "tests"
    known = [*tests.glob("**/test_risk_*.py"), *tests.glob("**/stories/**/risk_*.txt")]
    assert not {str(path.relative_to(ROOT)) for path in known} - named, "say of which risk it is"
