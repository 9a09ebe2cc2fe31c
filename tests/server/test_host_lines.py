"""The lines for hosts in README.md and docs/hosts.md start a server that answers."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_cases import HttpServer, environment

pytest_plugins = ("mcp_fixtures",)
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README[README.index("## In a chat") : README.index("## Without a person")]
HOSTS = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
NAMES = ("Claude Desktop", "Claude Code", "Cursor", "VS Code", "HTTP")
SNIPPETS = list(dict.fromkeys(re.findall(r"\{\"(?:mcpServers|servers)\":.*\}\}", SECTION + HOSTS)))


def _server(snippet: str) -> dict[str, Any]:
    document = json.loads(snippet)
    ((key, servers),) = document.items()
    assert key in ("mcpServers", "servers")
    found: dict[str, Any] = servers["primus"]
    return found


def test_the_readme_has_both_lines_for_every_host() -> None:
    for name in NAMES:
        part = SECTION[SECTION.index(f"**{name}") if f"**{name}" in SECTION else SECTION.index("**Any host over HTTP**") :]
        part = part[: part.find("\n\n**", 5)]
        marks = re.findall(r"^- (?:for a team, )?(from a clone|after publication)", part, re.MULTILINE)
        assert set(marks) == {"from a clone", "after publication"}, name
        assert len(marks) == len(re.findall(r"^- ", part, re.MULTILINE)), f"{name}: every line is marked"


def test_vs_code_has_its_own_key_and_published_lines_differ_in_the_command_only() -> None:
    for snippet in SNIPPETS:
        server = _server(snippet)
        assert ('"servers"' in snippet) is ("type" in server)
        if server.get("command", "").endswith("uvx"):
            assert server["args"][:2] == ["primus-mcp", "serve"]


def _filled(word: str, folder: Path) -> str:
    for name in ("YAML_DIR", "/ABSOLUTE/PATH/yaml", "${workspaceFolder}", "$PWD"):
        word = word.replace(name, str(folder))
    return word


@pytest.mark.anyio
@pytest.mark.parametrize("snippet", [text for text in SNIPPETS if '"command": "PRIMUS_MCP"' in text])
async def test_the_line_of_a_clone_starts_a_server(snippet: str, home: Path, tmp_path: Path) -> None:
    arguments = [_filled(word, tmp_path) for word in _server(snippet)["args"]]
    await _answers(arguments, home, tmp_path)


async def _answers(arguments: list[str], home: Path, folder: Path) -> None:
    """Like a host that starts servers in a folder of its own: the named folder is open to the tools, others are not."""
    (folder / "cluster.yaml").write_text("target_cluster: {gpu_arch: mi300x, num_nodes: 1}\n", encoding="utf-8")
    variables = environment(HOME=str(home), USERPROFILE=str(home))
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "primus_mcp", *arguments], env=variables)
    async with Client(stdio_client(parameters)) as client:
        result = await client.call_tool("open_session", {"workload": "llama3.1_8B", "cluster": str(folder / "cluster.yaml")})
        assert not result.is_error, result.content


@pytest.mark.anyio
async def test_the_line_for_claude_code_starts_a_server(home: Path, tmp_path: Path) -> None:
    for text in (SECTION, HOSTS):
        (line,) = re.findall(r"`claude mcp add primus -- PRIMUS_MCP (serve.*)`", text)
        await _answers([_filled(word, tmp_path) for word in shlex.split(line)], home, tmp_path)


def test_the_line_for_http_serves_the_url_that_stands_beside_it(home: Path, tmp_path: Path) -> None:
    (line,) = re.findall(r"`PRIMUS_MCP serve --http (--port 8765 .*?)`", SECTION)
    url = next(_server(text)["url"] for text in SNIPPETS if "127.0.0.1" in text)
    words = [_filled(word, tmp_path) for word in shlex.split(line)]
    words[words.index("8765")] = "0"
    server = HttpServer(home, *words)
    server.stop()
    assert re.sub(r":\d+/", ":8765/", server.url) == url
