#!/usr/bin/env bash
# Measures the layers of two models on the GPUs of this host (ROCm or CUDA) and prints simulate against benchmark for each component.
# Usage: scripts/measure_on_gpu.sh GPU [GPUS] [OUT]     GPU: a name of `primus-mcp gpus`; GPUS: how many may be used (default 1)
# Needs a torch build for this host's driver in the environment of $PYTHON (default: python3 of the active environment).
# PRIMUS_MCP_MINUTES limits each run (default 6). Nothing is changed on the device; a run that hangs is ended with all its processes.
set -euo pipefail

gpu=${1:?name the GPU as in primus-mcp gpus, for example mi300x or h200}
gpus=${2:-1}
out=${3:-measured_on_$gpu}
python=${PYTHON:-python3}
minutes=${PRIMUS_MCP_MINUTES:-6}
mkdir -p "$out"

"$python" - <<'PY'
import sys
try:
    import torch
except ImportError:
    sys.exit("torch is not installed: install the build of your ROCm or CUDA version first")
if not torch.cuda.is_available():
    sys.exit(f"torch {torch.__version__} (HIP {torch.version.hip}, CUDA {torch.version.cuda}) sees no GPU")
for index in range(torch.cuda.device_count()):
    found = torch.cuda.get_device_properties(index)
    print(f"GPU {index}: {found.name}, {found.total_memory / 2**30:.1f} GB")
PY

status=0
measure() {
  local name=$1 model=$2
  shift 2
  echo "--- $name"
  local command=("$python" -m primus_mcp benchmark --model "$model" --gpu "$gpu" --nodes 1 --benchmark-gpus "$gpus"
    --limit-minutes "$minutes" "$@" --save-benchmark "$out/$name.json")
  if "${command[@]}" | tee "$out/$name.txt"; then
    "${command[@]}" --json >"$out/$name.report.json" || true
  else
    echo "$name: no figures (see above)"
    status=1
  fi
}

measure llama3.1_8B llama3.1_8B --seq-length 8192 --gbs 128 --set mbs=1
measure deepseek_v2_lite deepseek_v2_lite --seq-length 4096 --gbs 640 --set mbs=4 --set ep=8
exit "$status"
