#!/bin/sh
# Packs dist/primus-mcp.mcpb, the one-click bundle for Claude Desktop, with the wheel of this checkout inside.
# Needs Python with pip, and mcpb from scripts/setup_node.sh.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
python=${PYTHON:-"$root/.venv/bin/python"}
bundle="$root/build/mcpb"
rm -rf "$bundle"
mkdir -p "$bundle" "$root/dist"
cp -R "$root/mcpb/." "$bundle"
"$python" -m pip wheel --quiet --no-deps --wheel-dir "$bundle" "$root"
wheel=$(basename "$bundle"/primus_mcp-*.whl)
printf '\n[tool.uv.sources]\nprimus-mcp = { path = "%s" }\n' "$wheel" >>"$bundle/pyproject.toml"
PATH="$root/.node/node_modules/.bin:$PATH"
export PATH
mcpb validate "$bundle/manifest.json"
mcpb pack "$bundle" "$root/dist/primus-mcp.mcpb"
