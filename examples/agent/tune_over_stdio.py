"""An agent without a language model: tunes Mixtral 8x22B on 4 nodes x 8 MI355X over MCP, with tools alone, and ends with the exports.

Run: python examples/agent/tune_over_stdio.py [--transcript FILE] [--steps N]. The policy is the simplest that works: seeds, then, as long
as it helps, the fastest single change that explain_trial finds for the best trial.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

TASK = {"workload": "mixtral_8x22B_v0.1-BF16-pretrain", "gpu": "mi355x", "nodes": 4}


class Conversation:
    """Calls tools and keeps a transcript of calls and of the fields that matter."""

    def __init__(self, client: Client) -> None:
        self.client, self.lines = client, ["# Mixtral 8x22B on 4 nodes x 8 MI355X, tuned over MCP", ""]

    async def call(self, name: str, *shown: str, **arguments: Any) -> dict[str, Any]:
        """One call; raises RuntimeError with the server's text when the tool refuses."""
        result = await self.client.call_tool(name, arguments)
        if result.is_error or result.structured_content is None:
            raise RuntimeError("".join(part.text for part in result.content if part.type == "text"))
        answer = dict(result.structured_content)
        given = ", ".join(f"{key}={json.dumps(value)}" for key, value in arguments.items() if key != "session_id")
        told = {key: answer[key] for key in shown}
        self.lines += ["```text", f"> {name}({given})", json.dumps(told, indent=1, ensure_ascii=False), "```", ""]
        return answer

    def say(self, text: str) -> None:
        """A remark of the agent."""
        self.lines += [text, ""]


async def tune(talk: Conversation, steps: int) -> dict[str, Any]:
    """Baseline, seeds, climbing, exports."""
    await talk.call("open_session", "workload", "cluster", "parameters", "memory_cap_gb", "baseline", **TASK)
    baseline = await talk.call("evaluate_simulate", "trial_id", "verdict", "reason", "tokens_per_s_per_gpu", "memory_per_gpu_gb")
    talk.say("The baseline fits." if baseline["verdict"] == "fits" else f"The baseline does not run as it is: {baseline['verdict']}.")
    await talk.call("seed_trials", "priced", "trials", "best_trial_id", "best_tokens_per_s_per_gpu")
    best = await talk.call("get_best", "trial_id", "tokens_per_s_per_gpu", "memory_per_gpu_gb", "verdict", "confidence")
    for _ in range(steps):
        explained = await talk.call("explain_trial", "bottlenecks", "faster", trial_id=best["trial_id"])
        safe = [step for step in explained["faster"] if step["verdict"] == "fits"]
        if not safe:
            talk.say("No single change is faster and surely fits: stop.")
            break
        talk.say(f"Try {json.dumps(safe[0]['change'])}: {safe[0]['gain']:.1%} faster by projection.")
        config = {**best["resolved"], **safe[0]["change"]}
        tried = await talk.call("evaluate_simulate", "trial_id", "verdict", "tokens_per_s_per_gpu", "memory_per_gpu_gb", config_json=config)
        best = await talk.call("get_best", "trial_id", "tokens_per_s_per_gpu", "verdict")
        if best["trial_id"] != tried["trial_id"]:
            break
    await talk.call("note_to_scratchpad", note=f"best is trial {best['trial_id']}; check it with a short run")
    exported = await talk.call("export_best", "trial_id", "exports", "overlay_path")
    talk.lines += ["```text", exported["block"], "```", ""]
    return exported


async def run(home: Path, steps: int) -> tuple[dict[str, Any], str]:
    """The exported result and the transcript."""
    server = StdioServerParameters(command=sys.executable, args=["-m", "primus_mcp", "serve", "--home", str(home)])
    async with Client(stdio_client(server)) as client:
        talk = Conversation(client)
        exported = await tune(talk, steps)
    return exported, "\n".join(talk.lines).replace(str(home), "~/.primus-mcp").rstrip() + "\n"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=6, help="changes to try after the seeds")
    parser.add_argument("--transcript", type=Path, metavar="FILE", help="write the conversation as Markdown")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        exported, transcript = asyncio.run(run(Path(home), arguments.steps))
    if arguments.transcript is not None:
        arguments.transcript.write_text(transcript, encoding="utf-8")
    sys.stdout.write(exported["block"] + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
