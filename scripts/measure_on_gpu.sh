#!/usr/bin/env bash
# Measures the layers of two models on GPUs of this host (ROCm or CUDA): artefact, operator table and simulate against benchmark in one folder.
# Usage: scripts/measure_on_gpu.sh GPU [GPUS] [OUT]     GPU: a name of `primus-mcp gpus`; GPUS: how many may be used (default 1)
# Takes the first Python that has torch with a GPU: $PYTHON, .venv, python3 and some usual places; it installs nothing and needs no network.
# Run it again to go on where it stopped: what an artefact in OUT holds is not measured twice, and a part that fails costs only itself.
# PRIMUS_MCP_MINUTES limits each model (default 4). PRIMUS_MCP_DEVICE=cpu and PRIMUS_MCP_SEQ=64 try the path out without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

gpu=${1:?name the GPU as in primus-mcp gpus, for example mi300x or h200}
gpus=${2:-1}
out=${3:-measured_on_$gpu}
minutes=${PRIMUS_MCP_MINUTES:-4}
device=${PRIMUS_MCP_DEVICE:-gpu}
seq=${PRIMUS_MCP_SEQ:-}
mkdir -p "$out" || exit 1

why_not() { # why a Python cannot measure; nothing where it can
  "$1" - "$device" 2>&1 <<'PY' | tail -n 1
import sys
try:
    import torch
except Exception as error:
    sys.exit(f"no torch ({error})")
if sys.argv[1] == "gpu" and not torch.cuda.is_available():
    sys.exit(f"torch {torch.__version__} (HIP {torch.version.hip}, CUDA {torch.version.cuda}) sees no GPU")
PY
}

python= told=
for candidate in ${PYTHON:-} .venv/bin/python python3 python /opt/venv/bin/python /opt/conda/bin/python /usr/bin/python3; do
  path=$(command -v "$candidate") || continue
  problem=$(why_not "$path")
  if [ -z "$problem" ]; then
    python=$path
    break
  fi
  told="$told; $path: $problem"
done
if [ -z "$python" ]; then
  echo "nothing can measure here${told:-; no Python was found}" >&2
  exit 1
fi

lacking() {
  "$python" - <<'PY'
import importlib
missing = []
for name in ("pydantic", "yaml", "numpy", "filelock"):
    try:
        importlib.import_module(name)
    except Exception:
        missing.append(name)
print(" ".join(missing))
PY
}
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
missing=$(lacking)
if [ -n "$missing" ]; then # the project's own environment, where it has the same Python version
  version=$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}")')
  export PYTHONPATH="$PYTHONPATH:$PWD/.venv/lib/$version/site-packages"
  missing=$(lacking)
fi
if [ -n "$missing" ]; then
  echo "$python has torch but lacks: $missing (pip install them there, or bring a .venv of $version that has them)" >&2
  exit 1
fi
"$python" - <<'PY'
import sys
import torch
print(f"{sys.executable}, torch {torch.__version__}")
for index in range(torch.cuda.device_count()):
    found = torch.cuda.get_device_properties(index)
    print(f"GPU {index}: {found.name}, {found.total_memory / 2**30:.1f} GB")
PY

force=()
[ "$device" = cpu ] && force=(--device cpu --force --repeats 3)
status=0
measure() {
  local name=$1 length=${seq:-$2}
  shift 2
  echo "--- $name"
  local command=("$python" -m primus_mcp benchmark --model "$name" --seq-length "$length" --gpu "$gpu" --nodes 1 --gemm-backend roofline
    --benchmark-gpus "$gpus" --limit-minutes "$minutes" ${force[@]+"${force[@]}"} "$@" --save-benchmark "$out/$name.json")
  "${command[@]}" >"$out/$name.txt" 2>"$out/$name.log"
  local code=$?
  cat "$out/$name.txt"
  if [ "$code" = 0 ] || [ "$code" = 3 ]; then # 3: measured, and the whole model does not fit
    "${command[@]}" --json >"$out/$name.report.json" 2>>"$out/$name.log"
  else
    echo "$name: $(tail -n 1 "$out/$name.log")" >&2
    status=1
  fi
}

measure llama3.1_8B 8192 --gbs 128 --set mbs=1
measure deepseek_v2_lite 4096 --gbs 640 --set mbs=4 --set ep=8
echo "--- $out: $(cd "$out" && ls | tr '\n' ' ')"
exit "$status"
