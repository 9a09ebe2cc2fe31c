"""Files by which hosts and registries find the server agree with the package and with their schemas."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from primus_mcp.version import PACKAGE_VERSION

ROOT = Path(__file__).parents[2]
SERVER: dict[str, Any] = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
MANIFEST: dict[str, Any] = json.loads((ROOT / "mcpb" / "manifest.json").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_every_file_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    bundle = tomllib.loads((ROOT / "mcpb" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {
        project["version"],
        SERVER["version"],
        *(package["version"] for package in SERVER["packages"]),
        MANIFEST["version"],
        bundle["version"],
        *(requirement.removeprefix("primus-mcp==") for requirement in bundle["dependencies"]),
        *re.findall(r'image\.version="([^"]+)"', DOCKERFILE),
    }
    assert named == {PACKAGE_VERSION}


def test_complaint_32_the_registry_would_take_server_json() -> None:
    assert len(SERVER["description"]) <= 100
    assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", SERVER["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", SERVER["version"])
    assert SERVER["packages"][0]["identifier"] == "primus-mcp"


@pytest.mark.parametrize(("document", "schema"), [(SERVER, "server.schema.json"), (MANIFEST, "mcpb-manifest.schema.json")])
def test_the_published_schemas_accept_the_files(shared: Path, document: dict[str, Any], schema: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    rules = json.loads((shared / "schemas" / schema).read_text(encoding="utf-8"))
    assert [error.message for error in jsonschema.Draft7Validator(rules).iter_errors(document)] == []


def test_the_name_that_proves_ownership_is_everywhere_the_same() -> None:
    hosts = (ROOT / "docs" / "hosts.md").read_text(encoding="utf-8")
    assert f"mcp-name: {SERVER['name']}" in hosts
    assert f"mcp-name: {SERVER['name']}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f'io.modelcontextprotocol.server.name="{SERVER["name"]}"' in DOCKERFILE


def test_complaint_28_secrets_are_marked_and_never_arguments() -> None:
    for variable in SERVER["packages"][0]["environmentVariables"]:
        assert variable.get("isSecret", False) is ("KEY" in variable["name"])
    for name, setting in MANIFEST["user_config"].items():
        assert setting.get("sensitive", False) is ("key" in name)
    assert not any("key" in word for word in MANIFEST["server"]["mcp_config"]["args"])


def test_the_container_runs_as_a_user_and_keeps_its_runs_apart() -> None:
    assert "\nUSER primus\n" in DOCKERFILE
    assert 'ENTRYPOINT ["primus-mcp", "serve", "--home", "/data", "--root", "/work"]' in DOCKERFILE
