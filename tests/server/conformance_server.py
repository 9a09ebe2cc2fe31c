"""Our server with the fixtures that the official conformance suite calls, mounted for the test only.

Usage: python conformance_server.py HOME; the URL is the first line on stdout.
"""

from __future__ import annotations

import base64
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import mcp.types as types
import uvicorn
from conformance_asking import add_asking_fixtures
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import AcceptedElicitation, Audio, Context, Elicit, ElicitationResult, Image, Resolve, Sample, UserMessage
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import EmbeddedResource, ImageContent, TextContent, TextResourceContents
from pydantic import BaseModel, Field

from primus_mcp.server.app import PrimusServer, build_server
from primus_mcp.server.http import http_app
from primus_mcp.server.options import ServeOptions

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")
PAUSE_S = 0.05


def _resource(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _content_tools(server: PrimusServer) -> None:
    @server.tool()
    def test_simple_text() -> str:
        """Returns text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> Image:
        """Returns an image."""
        return Image(data=PNG, format="png")

    @server.tool()
    def test_audio_content() -> Audio:
        """Returns audio."""
        return Audio(data=WAV, format="wav")

    @server.tool()
    def test_embedded_resource() -> EmbeddedResource:
        """Returns a resource."""
        return _resource("test://embedded-resource", "This is an embedded resource content.")

    @server.tool()
    def test_multiple_content_types() -> list[TextContent | Image | EmbeddedResource]:
        """Returns several kinds of content."""
        text = TextContent(type="text", text="Multiple content types test:")
        resource = _resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json")
        return [text, Image(data=PNG, format="png"), resource]

    @server.tool()
    def test_error_handling() -> str:
        """Fails on purpose."""
        raise ToolError("This tool intentionally returns an error for testing")


def _talking_tools(server: PrimusServer) -> None:
    @server.tool()
    async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
        """Reports progress."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100, f"Completed step {done} of 100")
            await anyio.sleep(PAUSE_S)
        return "ok"

    @server.tool()
    async def test_tool_with_logging(ctx: Context[Any, Any]) -> str:
        """Logs to the client."""
        for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(text)
            await anyio.sleep(PAUSE_S)
        return "ok"


class Name(BaseModel):
    """A form of the suite."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    """Defaults of every primitive type (SEP-1034)."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)]},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {"type": "array", "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]}},
    },
}


def ask_anything() -> Sample:
    return ask_model("anything")


def ask_model(prompt: str) -> Sample:
    return Sample([types.SamplingMessage(role="user", content=TextContent(type="text", text=prompt))], max_tokens=100)


def ask_name(message: str) -> Elicit[Name]:
    return Elicit(message, Name)


def ask_defaults() -> Elicit[Defaults]:
    return Elicit("Please review and update the form fields with defaults", Defaults)


def _asking_tools(server: PrimusServer) -> None:
    @server.tool()
    async def test_sampling(prompt: str, reply: Annotated[types.CreateMessageResult, Resolve(ask_model)]) -> str:
        """Asks the client's model."""
        return f"LLM response: {reply.content.text}"  # type: ignore[union-attr]

    @server.tool()
    async def test_elicitation(message: str, answer: Annotated[ElicitationResult[Name], Resolve(ask_name)]) -> str:
        """Asks the person."""
        data = answer.data.model_dump() if isinstance(answer, AcceptedElicitation) else {}
        return f"User response: action={answer.action}, content={data}"

    @server.tool()
    async def test_missing_capability(reply: Annotated[types.CreateMessageResult, Resolve(ask_anything)]) -> str:
        """Needs a capability that the client may lack."""
        return str(reply.model)

    @server.tool()
    async def test_elicitation_sep1330_enums(ctx: Context[Any, Any]) -> str:
        """Asks the person with every kind of enum (SEP-1330)."""
        answer = await ctx.session.elicit_form("Please select options", ENUMS, ctx.request_context.request_id)
        return f"Elicitation completed: action={answer.action}, content={answer.content}"

    @server.tool()
    async def test_elicitation_sep1034_defaults(answer: Annotated[ElicitationResult[Defaults], Resolve(ask_defaults)]) -> str:
        """Asks the person with defaults."""
        data = answer.data.model_dump() if isinstance(answer, AcceptedElicitation) else {}
        return f"Elicitation completed: action={answer.action}, content={data}"


def _resources_and_prompts(server: PrimusServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        """Text."""
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        """Bytes."""
        return PNG

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        """A resource that can be subscribed to."""
        return "Watched resource content"

    @server.resource("test://template/{number}/data", mime_type="application/json")
    def template(number: str) -> str:
        """A template."""
        return f'{{"id":"{number}","templateTest":true,"data":"Data for ID: {number}"}}'

    @server.prompt()
    def test_simple_prompt() -> str:
        """A simple prompt."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(
        arg1: Annotated[str, Field(description="First test argument")], arg2: Annotated[str, Field(description="Second test argument")]
    ) -> str:
        """A prompt with arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(
        resourceUri: Annotated[str, Field(description="URI of the resource to embed")],  # noqa: N803  the suite's name
    ) -> list[UserMessage]:
        """A prompt with a resource."""
        resource = _resource(resourceUri, "Embedded resource content for testing.")
        return [UserMessage(resource), UserMessage("Please process the embedded resource above.")]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """A prompt with an image."""
        image = ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")
        return [UserMessage(image), UserMessage("Please analyze the image above.")]


class FixtureServer(PrimusServer):
    """The product has no client logging (deprecated since 2026-07-28); the suite's older revision wants `logging/setLevel` answered."""

    def serve_log_level(self) -> None:
        async def set_level(_: ServerRequestContext[Any, Any], __: types.SetLevelRequestParams) -> types.EmptyResult:
            return types.EmptyResult()

        self._handle("logging/setLevel", types.SetLevelRequestParams, set_level)


def fixture_server(home: Path) -> tuple[PrimusServer, ServeOptions]:
    """Our server and everything that the suite asks for."""
    options = ServeOptions(home=home, http=True)
    server = FixtureServer(build_server(options).app)
    server.serve_log_level()
    for mount in (_content_tools, _talking_tools, _asking_tools, _resources_and_prompts, add_asking_fixtures):
        mount(server)
    return server, options


def main() -> None:
    """Serve on a free port."""
    warnings.simplefilter("ignore")
    server, options = fixture_server(Path(sys.argv[1]))

    class Announced(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            sys.stdout.write(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]}/mcp\n")
            sys.stdout.flush()

    Announced(uvicorn.Config(http_app(server, options), host="127.0.0.1", port=0, log_level="error", timeout_graceful_shutdown=1)).run()


if __name__ == "__main__":
    main()
