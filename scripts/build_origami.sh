#!/bin/sh
# Builds rocm-origami (AMD's analytical GEMM model) into a Python environment; no GPU is needed, only HIP's headers.
# Usage: scripts/build_origami.sh [PYTHON]      (default: .venv/bin/python, run from the project's root)
# Debian 12 packages: rocm-cmake libamdhip64-dev hipcc g++ (installed here when root and apt-get are at hand).
set -eu

python=${1:-.venv/bin/python}
version=0.0.3

if "$python" -c "import origami" 2>/dev/null; then
    echo "origami is already installed in $python"
    exit 0
fi

missing=""
for package in rocm-cmake libamdhip64-dev hipcc g++; do
    dpkg -s "$package" >/dev/null 2>&1 || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        apt-get update -qq
        # shellcheck disable=SC2086  # a list of package names
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
    else
        echo "missing system packages:$missing (install them, then run this again)" >&2
        exit 1
    fi
fi

"$python" -m pip install --quiet "nanobind>=2.4,<3"
rocm=/usr/share/rocm
CMAKE_ARGS="-DFETCHCONTENT_SOURCE_DIR_ROCM-CMAKE=$rocm -DCMAKE_MODULE_PATH=$rocm/cmake \
-DFETCHCONTENT_TRY_FIND_PACKAGE_MODE=ALWAYS -Dnanobind_DIR=$("$python" -m nanobind --cmake_dir) \
-DCMAKE_POLICY_VERSION_MINIMUM=3.5" \
    "$python" -m pip install --quiet "rocm-origami==$version"
"$python" -c "import origami; print('origami', origami.__file__)"
