#!/bin/sh
# Installs Node 24 and the MCP tools that tests/server/test_node_clients.py drives into .node/ (ignored by git), by npm.
# Any Node with npm will do to start; nothing outside .node/ is changed.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
target="$root/.node"
marker="$target/.complete-2"
[ -f "$marker" ] && exit 0
command -v npm >/dev/null 2>&1 || { echo "setup_node: npm is not installed; the Node tests will be skipped" >&2; exit 0; }
mkdir -p "$target"
cd "$target"
[ -f package.json ] || printf '{"name": "primus-mcp-node-tools", "private": true}\n' >package.json
npm install --no-fund --no-audit --silent node@24
PATH="$target/node_modules/.bin:$PATH"
export PATH
npm install --no-fund --no-audit --silent \
  @modelcontextprotocol/inspector@2.12.0 \
  @modelcontextprotocol/conformance@0.2.0-alpha.12 \
  @modelcontextprotocol/sdk@1.32.2 \
  @anthropic-ai/mcpb@2.1.2
: >"$marker"
