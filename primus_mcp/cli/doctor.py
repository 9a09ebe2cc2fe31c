"""`primus-mcp doctor`: what works on this machine, and the remedy for what does not."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from primus_mcp.cli.search_stage import add_model_arguments
from primus_mcp.units import bytes_to_gb

Status = Literal["ok", "optional", "broken"]

NODE_MAJOR = 22
"""The MCP Inspector 2 and the conformance suite need it."""
PROBE_SECONDS = 60
_TORCH_PROBE = (
    "import json, torch; n = torch.cuda.device_count(); "
    "print(json.dumps([torch.__version__, [[torch.cuda.get_device_name(i), torch.cuda.get_device_properties(i).total_memory] "
    "for i in range(n)]]))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`optional`: absent, and only `needed_for` does without it. `broken`: primus-mcp itself cannot work like this."""

    name: str
    status: Status
    found: str
    needed_for: str
    remedy: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--out-dir, --primus-root, --target-cluster, --llm, --llm-model, --llm-base-url, --json."""
    parser.add_argument("--out-dir", type=Path, default=Path("tuning_runs"), metavar="DIR", help="the folder to try (default tuning_runs)")
    parser.add_argument("--primus-root", type=Path, metavar="DIR", help="Primus checkout to try")
    parser.add_argument("--target-cluster", type=Path, metavar="YAML", help="cluster file whose LLM settings count")
    parser.add_argument("--llm", action="store_true", help="also make one tiny request to the language model, and say what it cost")
    add_model_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _python(_: argparse.Namespace) -> Check:
    package = _version("primus-mcp") or "from source"
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, primus-mcp {package}"
    return Check(name="python", status="ok", found=found, needed_for="everything")


def _catalogue(_: argparse.Namespace) -> Check:
    from primus_mcp.inputs.hardware_files import gpu_names, gpu_profile
    from primus_mcp.inputs.published import published_models

    for name in gpu_names():
        gpu_profile(name)
    found = f"{len(published_models())} models, {len(gpu_names())} GPUs"
    return Check(name="catalogue", status="ok", found=found, needed_for="everything")


def _out_dir(arguments: argparse.Namespace) -> Check:
    """Tries a lock and a file, in the folder or, where it does not exist yet, in the nearest one that does; leaves nothing behind."""
    from primus_mcp.errors import RunDirectoryError
    from primus_mcp.trials.storage import RunDirectory

    folder = arguments.out_dir.absolute()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    needed = "trials and artefacts"
    try:
        with tempfile.TemporaryDirectory(prefix="primus-mcp-doctor-", dir=folder) as probe:
            directory = RunDirectory(Path(probe) / "run")
            with directory.locked():
                directory.write("probe", "ok")
    except OSError as error:
        found = f"{folder} is not writable ({error.strerror or error})"
        return Check(name="out-dir", status="broken", found=found, needed_for=needed, remedy="choose a writable --out-dir")
    except RunDirectoryError as error:
        return Check(name="out-dir", status="broken", found=str(error), needed_for=needed, remedy="choose a writable --out-dir")
    free_gb = bytes_to_gb(shutil.disk_usage(folder).free)
    return Check(name="out-dir", status="ok", found=f"{folder} is writable, {free_gb:,.1f} GB free", needed_for=needed)


def _console(_: argparse.Namespace) -> Check:
    encoding = (getattr(sys.stdout, "encoding", None) or "unknown").lower()
    if encoding.replace("-", "") == "utf8":
        return Check(name="console", status="ok", found=encoding, needed_for="readable output")
    return Check(name="console", status="optional", found=f"{encoding}, not UTF-8", needed_for="readable output", remedy="set PYTHONUTF8=1")


def _origami(_: argparse.Namespace) -> Check:
    needed = "AMD's GEMM model in --profiling-mode simulate (without it: the built-in roofline)"
    remedy = "pip install 'primus-mcp[origami]' with apt packages rocm-cmake libamdhip64-dev hipcc (`make origami`)"
    if find_spec("origami") is None:
        return Check(name="origami", status="optional", found="not installed", needed_for=needed, remedy=remedy)
    try:
        from primus_mcp.inputs.cluster import make_cluster
        from primus_mcp.projection.ops.origami import OrigamiGemm

        OrigamiGemm(make_cluster("mi300x"))
    except Exception as error:
        found = f"installed, but does not start ({type(error).__name__}: {_one_line(error)})"
        return Check(name="origami", status="optional", found=found, needed_for=needed, remedy=remedy)
    return Check(name="origami", status="ok", found=_version("rocm-origami") or "installed", needed_for=needed)


def _torch(_: argparse.Namespace) -> Check:
    """Asked in a process of its own: a broken driver must not take the doctor down."""
    needed = "--profiling-mode benchmark (measured runs on this host)"
    if find_spec("torch") is None:
        remedy = "pip install the torch build of your ROCm or CUDA version, then 'primus-mcp[benchmark]'"
        return Check(name="torch", status="optional", found="not installed", needed_for=needed, remedy=remedy)
    try:
        run = subprocess.run([sys.executable, "-c", _TORCH_PROBE], capture_output=True, text=True, timeout=PROBE_SECONDS, check=True)  # noqa: S603
        torch_version, devices = json.loads(run.stdout.splitlines()[-1])
    except Exception as error:
        found = f"installed, but does not start ({type(error).__name__})"
        return Check(name="torch", status="optional", found=found, needed_for=needed, remedy="reinstall torch for this machine's driver")
    if not devices:
        remedy = "use --profiling-mode simulate here, or run on a host with a GPU and set available_for_benchmark.has_gpu: true"
        return Check(name="torch", status="optional", found=f"{torch_version}, no GPU", needed_for=needed, remedy=remedy)
    names = ", ".join(sorted({f"{name} ({bytes_to_gb(memory):.1f} GB)" for name, memory in devices}))
    return Check(name="torch", status="ok", found=f"{torch_version}, {len(devices)} x {names}", needed_for=needed)


def _dspy(_: argparse.Namespace) -> Check:
    needed = "the LLM stage of tune (without it: coordinate search)"
    if find_spec("dspy") is None:
        remedy = "pip install 'primus-mcp[agent]', or run with --seed-only"
        return Check(name="dspy", status="optional", found="not installed", needed_for=needed, remedy=remedy)
    return Check(name="dspy", status="ok", found=_version("dspy") or "installed", needed_for=needed)


def _program(name: str, *beside: str) -> str | None:
    """A program on the path, or beside this Python (where wheels put programs)."""
    found = shutil.which(name)
    places = [Path(sys.executable).parent / name, *(Path(sys.executable).parent / extra for extra in beside)]
    return found or next((str(place) for place in places if place.is_file()), None)


def _said(program: str) -> str:
    run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=PROBE_SECONDS, check=True)  # noqa: S603
    return (run.stdout.splitlines() or [""])[0].strip()


def _deno(_: argparse.Namespace) -> Check:
    needed = "the sandbox in which the LLM stage runs code"
    remedy = "pip install 'primus-mcp[agent]' (brings a Deno), or install Deno 2"
    program = _program("deno", "deno.exe")
    if program is None:
        return Check(name="deno", status="optional", found="not found", needed_for=needed, remedy=remedy)
    try:
        return Check(name="deno", status="ok", found=_said(program), needed_for=needed)
    except Exception as error:
        return Check(name="deno", status="optional", found=f"does not start ({type(error).__name__})", needed_for=needed, remedy=remedy)


def _llm_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Where the model's settings come from: the same places as for `tune`."""
    from primus_mcp.driver.settings import env_folders

    return {
        "where": f"{arguments.target_cluster or 'the cluster file'}:",
        "model": arguments.llm_model,
        "base_url": arguments.llm_base_url,
        "folders": env_folders(arguments.primus_root),
    }


def _llm(arguments: argparse.Namespace) -> Check:
    """Which model would be asked, and where its key comes from; never the key."""
    from primus_mcp.driver.settings import resolve_language_model
    from primus_mcp.errors import PrimusMcpError
    from primus_mcp.inputs.cluster import read_cluster
    from primus_mcp.inputs.cluster_file import AgentSettings

    needed = "the LLM stage of tune (without it: coordinate search)"
    try:
        agent = read_cluster(arguments.target_cluster).agent if arguments.target_cluster is not None else AgentSettings()
    except PrimusMcpError as error:
        found, remedy = f"--target-cluster {error}", "name a cluster file that can be read"
        return Check(name="llm", status="broken", found=found, needed_for=needed, remedy=remedy)
    try:
        model = resolve_language_model(agent, **_llm_settings(arguments))
    except PrimusMcpError as error:
        remedy = "set LLM_MODEL and the provider's key, or run with --seed-only"
        return Check(name="llm", status="optional", found=str(error), needed_for=needed, remedy=remedy)
    return Check(name="llm", status="ok", found=model.text, needed_for=needed)


def _primus(arguments: argparse.Namespace) -> Check:
    from primus_mcp.errors import PrimusMcpError
    from primus_mcp.evaluation.primus_cli import checkout_problem, commit_of
    from primus_mcp.inputs.presets import bundled_root, config_roots

    presets = len(list((bundled_root().path / "models" / "megatron").glob("*.yaml")))
    needed = "model files that are not bundled, and --evaluator primus"
    if arguments.primus_root is None:
        found = f"not named; {presets} bundled model files are used"
        return Check(name="primus", status="optional", found=found, needed_for=needed, remedy="name a checkout with --primus-root")
    try:
        root = config_roots(None, arguments.primus_root)[0]
    except PrimusMcpError as error:
        return Check(name="primus", status="broken", found=str(error), needed_for=needed, remedy="name a Primus checkout")
    if (problem := checkout_problem(arguments.primus_root)) is not None:
        return Check(name="primus", status="ok", found=f"{root.path} (not usable as --evaluator primus: {problem})", needed_for=needed)
    return Check(name="primus", status="ok", found=f"{root.path} at commit {commit_of(arguments.primus_root)[:12]}", needed_for=needed)


def _node(_: argparse.Namespace) -> Check:
    needed = "the MCP test suites (not needed to use primus-mcp)"
    remedy = f"install Node {NODE_MAJOR} or newer"
    program = _program("node", "node.exe")
    if program is None:
        return Check(name="node", status="optional", found="not found", needed_for=needed, remedy=remedy)
    try:
        said = _said(program)
    except Exception as error:
        return Check(name="node", status="optional", found=f"does not start ({type(error).__name__})", needed_for=needed, remedy=remedy)
    major = said.lstrip("v").split(".")[0]
    if not major.isdigit() or int(major) < NODE_MAJOR:
        return Check(name="node", status="optional", found=f"{said}, too old", needed_for=needed, remedy=remedy)
    return Check(name="node", status="ok", found=said, needed_for=needed)


CHECKS: tuple[Callable[[argparse.Namespace], Check], ...] = (
    _python,
    _catalogue,
    _out_dir,
    _console,
    _origami,
    _torch,
    _dspy,
    _deno,
    _llm,
    _primus,
    _node,
)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:120]


def examine(arguments: argparse.Namespace) -> Iterator[Check]:
    """Every check; one that fails itself is a finding, not an end."""
    for check in CHECKS:
        try:
            yield check(arguments)
        except Exception as error:
            name = check.__name__.lstrip("_")
            found = f"the check failed ({type(error).__name__}: {_one_line(error)})"
            yield Check(name=name, status="broken", found=found, needed_for="everything", remedy="report it with PRIMUS_MCP_DEBUG=1")


def _ask_llm(arguments: argparse.Namespace) -> Iterator[Check]:
    """The driver's own examination: settings, one request, the sandbox for generated code."""
    from primus_mcp.driver.doctor import check_llm
    from primus_mcp.inputs.cluster import read_cluster

    agent = read_cluster(arguments.target_cluster).agent if arguments.target_cluster is not None else None
    for found in check_llm(agent, **_llm_settings(arguments)):
        yield Check(name=found.name, status="ok" if found.ok else "optional", found=found.text, needed_for="the LLM stage of tune")


def run(arguments: argparse.Namespace) -> int:
    """Print the checks; exit 2 when something that primus-mcp cannot do without is broken."""
    from primus_mcp.cli.codes import EXIT_BAD_INPUT, EXIT_OK

    checks = [*examine(arguments), *(_ask_llm(arguments) if arguments.llm else ())]
    if arguments.json:
        print(json.dumps([asdict(check) for check in checks], indent=2))
    else:
        for check in checks:
            print(f"{check.status:9} {check.name:10} {check.found}")
            if check.remedy:
                print(f"{'':20} for {check.needed_for}: {check.remedy}")
    return EXIT_BAD_INPUT if any(check.status == "broken" for check in checks) else EXIT_OK
