"""Every tool, resource and prompt through the protocol, in memory, in both eras."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from mcp import MCPError
from mcp_cases import LLAMA, MIXTRAL, Connect, call, refused, text_of

from primus_mcp.server.app import PrimusServer

pytest_plugins = ("mcp_fixtures",)
pytestmark = pytest.mark.anyio


async def test_a_conversation_opens_prices_explains_and_exports(connect: Connect, home: Path) -> None:
    async with connect() as client:
        opened = await call(client, "open_session", **MIXTRAL)
        assert opened["world_size"] == 32
        assert opened["baseline"]["pp"] == 4
        assert Path(opened["out_dir"]).is_relative_to(home)
        baseline = await call(client, "evaluate_simulate")
        assert baseline["trial_id"] == 0
        assert baseline["verdict"] == "too large"
        assert baseline["tokens_per_s_per_gpu"] is None
        explained = await call(client, "explain_trial", trial_id=0)
        assert explained["would_fit"]
        fitting = await call(client, "evaluate_simulate", config_json=explained["would_fit"][0]["change"])
        assert fitting["verdict"] == "fits"
        assert fitting["tokens_per_s_per_gpu"] == pytest.approx(explained["would_fit"][0]["tokens_per_s_per_gpu"], rel=1e-5)
        best = await call(client, "get_best")
        assert best["trial_id"] == 1
        assert best["times_baseline"] is None
        exported = await call(client, "export_best")
        assert any(line.startswith("export PRIMUS_PP=") for line in exported["exports"])
        assert Path(exported["overlay_path"]).read_text(encoding="utf-8") == exported["overlay"]
        compared = await call(client, "compare_trials", trial_ids=[0, 1])
        assert set(compared["differences"]) == set(explained["would_fit"][0]["change"]) | (
            {"recompute_num_layers"} & set(compared["differences"])
        )
        page = await call(client, "get_history", limit=1)
        assert page["total"] == 2
        assert page["trials"][0]["trial_id"] == 1
        rest = await call(client, "get_history", limit=1, cursor=page["next_cursor"])
        assert rest["trials"][0]["trial_id"] == 0
        assert rest["next_cursor"] is None


async def test_a_repeat_is_free_and_says_so(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        first = await call(client, "evaluate_simulate", config_json={"mbs": 1})
        again = await call(client, "evaluate_simulate", config_json={"mbs": 1, "tp": None})
        assert (first["repeated"], again["repeated"]) == (False, True)
        assert again["trial_id"] == first["trial_id"]
        spent = (await call(client, "get_budget_status"))["budgets"]["max_evaluations"]["spent"]
        assert spent == 1


@pytest.mark.parametrize(
    "given",
    ['{"tp": 2}', '```json\n{"tp": 2}\n```', '```\n{"tp": 2, "mbs": "inherit"}\n```', {"tp": 2, "pp": None}, {"tp": 2, "mbs": "inherit"}],
)
async def test_a_configuration_may_come_as_object_or_text_and_inherits_what_it_leaves_out(connect: Connect, given: object) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        described = await call(client, "describe_config", config_json=given)
        assert described["changes"] == {"tp": 2}


@pytest.mark.parametrize("nothing", [None, {}, "inherit", "null", "", '"inherit"'])
async def test_nothing_means_the_baseline(connect: Connect, nothing: object) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        assert (await call(client, "describe_config", config_json=nothing))["changes"] == {}


async def test_mistakes_are_errors_that_say_what_to_do(connect: Connect) -> None:
    async with connect() as client:
        assert "call open_session" in await refused(client, "evaluate_simulate")
        assert "mixtral" in await refused(client, "open_session", workload="mixtrall-8x22", gpu="mi355x", nodes=4)
        assert "list_gpus" in await refused(client, "open_session", workload="llama3.1_8B")
        assert "mi300x" in await refused(client, "open_session", workload="llama3.1_8B", gpu="mi300", nodes=1)
        await call(client, "open_session", **LLAMA)
        assert "'tp'" in await refused(client, "evaluate_simulate", config_json={"tpp": 8})
        assert "config_json" in await refused(client, "evaluate_simulate", tp=8)
        assert "config_json" in await refused(client, "evaluate_simulate", config={"tp": 8})
        assert "write a number" in await refused(client, "get_trial", trial_id=True)
        assert "no trial was evaluated" in await refused(client, "explain_trial", trial_id=0)
        assert "best, newest" in (await refused(client, "get_history", order="up")).replace("newest, oldest, best", "best, newest")
        assert "from 1 to 100" in await refused(client, "get_history", limit=0)
        assert "next_cursor" in await refused(client, "get_history", cursor="x")
        assert "budgets are" in await refused(client, "set_budget", budget="x", limit=1)
        assert "has_gpu" in await refused(client, "evaluate_with_benchmark")
        assert "LLM_MODEL" in await refused(client, "query_llm", prompt="hello")
        assert "seed_trials" in await refused(client, "get_best")


async def test_an_illegal_trial_is_a_result(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        result = await call(client, "evaluate_simulate", config_json={"tp": 3})
        assert result["legal"] is False
        assert "3" in result["reason"]
        assert result["memory_per_gpu_gb"] is None
        assert result["verdict"] == "illegal"


async def test_budgets_limit_what_they_say_and_can_be_raised(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        await call(client, "set_budget", budget="max_evaluations", limit=1)
        await call(client, "evaluate_simulate")
        assert "set_budget" in await refused(client, "evaluate_simulate", config_json={"mbs": 1})
        await call(client, "evaluate_simulate")
        await call(client, "set_budget", budget="max_evaluations", limit=-1)
        await call(client, "evaluate_simulate", config_json={"mbs": 1})


async def test_limits_of_the_driver_do_not_stop_a_person(connect: Connect) -> None:
    cluster = (
        "target_cluster: {gpu_arch: mi300x, num_nodes: 1}\noptimization:\n  budget: {max_proposals: 0, max_perf_calls: 0, max_rounds: 0}\n"
    )
    async with connect() as client:
        await call(client, "open_session", workload="llama3.1_8B", cluster=cluster)
        assert (await call(client, "evaluate_simulate"))["trial_id"] == 0
        assert (await call(client, "seed_trials"))["priced"] > 0


async def test_what_if_on_another_cluster_keeps_results_apart(connect: Connect) -> None:
    async with connect() as client:
        opened = await call(client, "open_session", **MIXTRAL)
        await call(client, "evaluate_simulate", config_json={"recompute_granularity": "full"})
        larger = await call(client, "set_cluster", nodes=8)
        assert larger["session_id"] == opened["session_id"]
        assert larger["world_size"] == 64
        assert larger["resumed_trials"] == 0
        assert larger["out_dir"] != opened["out_dir"]
        other = await call(client, "set_cluster", gpu="mi300x", nodes=4)
        assert other["gpu"] == "mi300x"
        back = await call(client, "set_cluster", gpu="mi355x", nodes=4)
        assert back["resumed_trials"] == 1
        assert back["out_dir"] == opened["out_dir"]


async def test_pins_and_lengths_hold(connect: Connect) -> None:
    async with connect() as client:
        opened = await call(client, "open_session", **LLAMA, pin={"tp": 2}, seq_length=4096, global_batch_size=64)
        assert opened["pinned"] == {"tp": 2}
        assert opened["seq_length"] == 4096
        result = await call(client, "evaluate_simulate", config_json={"mbs": 1})
        assert (result["resolved"]["tp"], result["resolved"]["gbs"]) == (2, 64)
        moved = await call(client, "evaluate_simulate", config_json={"tp": 4})
        assert "pinned" in moved["reason"]


async def test_reopening_resumes(connect: Connect) -> None:
    async with connect() as client:
        first = await call(client, "open_session", **LLAMA)
        await call(client, "evaluate_simulate")
        again = await call(client, "open_session", **LLAMA)
        assert again["session_id"] == first["session_id"]
        assert again["resumed_trials"] == 1


async def test_several_sessions_need_their_ids(connect: Connect) -> None:
    async with connect() as client:
        one = await call(client, "open_session", **LLAMA)
        two = await call(client, "open_session", **MIXTRAL)
        message = await refused(client, "evaluate_simulate")
        assert one["session_id"] in message
        assert two["session_id"] in message
        assert (await call(client, "evaluate_simulate", session_id=one["session_id"]))["cluster"] == "mi300x_1nodes"
        assert "open_session again" in await refused(client, "get_cluster", session_id="s_" + "A" * 22)


async def test_seeds_run_and_a_plot_is_an_image(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        seeds = await call(client, "seed_trials")
        assert seeds["priced"] == 12
        assert seeds["stopped_because"] == "seed budget used"
        plot = await client.call_tool("plot_trials", {})
        image = next(part for part in plot.content if part.type == "image")
        assert image.mime_type == "image/png"
        assert 10_000 < len(image.data) < 140_000
        assert plot.structured_content is not None
        assert "png" not in plot.structured_content


async def test_notes_are_kept_as_data(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        await call(client, "note_to_scratchpad", note="tp 2 is slow\x1b[31m\u200b\x07")
        assert (await call(client, "read_scratchpad"))["notes"] == "tp 2 is slow\n"


async def test_resources_show_the_same_as_the_tools(connect: Connect) -> None:
    async with connect() as client:
        session_id = (await call(client, "open_session", **LLAMA))["session_id"]
        await call(client, "evaluate_simulate")
        listed = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert f"primus://sessions/{session_id}/trials" in listed
        for uri in listed:
            content = (await client.read_resource(uri)).contents[0]
            assert content.mime_type in ("application/json", "text/markdown", "text/html", "image/png")
        best = json.loads((await client.read_resource(f"primus://sessions/{session_id}/best")).contents[0].text)  # type: ignore[union-attr]
        assert best["trial_id"] is None
        await call(client, "evaluate_simulate", config_json={"recompute_granularity": "full"})
        best = json.loads((await client.read_resource(f"primus://sessions/{session_id}/best")).contents[0].text)  # type: ignore[union-attr]
        assert best["trial_id"] == 1
        trial = json.loads((await client.read_resource(f"primus://sessions/{session_id}/trials/0")).contents[0].text)  # type: ignore[union-attr]
        assert trial["trial_id"] == 0
        templates = [template.uri_template for template in (await client.list_resource_templates()).resource_templates]
        assert "primus://sessions/{session_id}/trials{?cursor}" in templates
        for missing in (
            f"primus://sessions/{session_id}/trials/9",
            "primus://sessions/s_none/trials",
            "primus://nothing",
            f"primus://sessions/{session_id}/trials/x",
        ):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(missing)
            assert caught.value.code == -32602


async def test_prompts_take_arguments_and_complete_them(connect: Connect) -> None:
    async with connect() as client:
        prompts = (await client.list_prompts()).prompts
        assert [prompt.name for prompt in prompts] == ["tune_workload", "explain_best", "will_it_fit", "plan_cluster"]
        assert all(prompt.description and prompt.title and all(a.description for a in prompt.arguments or []) for prompt in prompts)
        got = await client.get_prompt("tune_workload", {"workload": "llama3.1_8B", "gpu": "mi300x", "nodes": "1"})
        assert "llama3.1_8B on 1 nodes of mi300x" in got.messages[0].content.text  # type: ignore[union-attr]
        assert "{{" not in got.messages[0].content.text  # type: ignore[union-attr]
        with pytest.raises(MCPError):
            await client.get_prompt("tune_workload", {"workload": "llama3.1_8B"})


async def test_completions_know_models_gpus_and_the_callers_sessions(server: PrimusServer, connect: Connect) -> None:
    from mcp.types import PromptReference, ResourceTemplateReference

    async with connect() as client:
        session_id = (await call(client, "open_session", **LLAMA))["session_id"]
        prompt = PromptReference(type="ref/prompt", name="tune_workload")
        models = await client.complete(prompt, {"name": "workload", "value": "mixtral"})
        assert "mixtral_8x22B_v0.1" in models.completion.values
        gpus = await client.complete(prompt, {"name": "gpu", "value": "mi35"})
        assert "mi355x" in gpus.completion.values
        template = ResourceTemplateReference(type="ref/resource", uri="primus://sessions/{session_id}/trials/{trial_id}")
        ids = await client.complete(template, {"name": "session_id", "value": ""})
        assert ids.completion.values == [session_id]


async def test_the_instructions_fit_and_start_with_the_order_of_calls(connect: Connect) -> None:
    async with connect() as client:
        text = client.instructions or ""
        assert len(text) < 2000
        assert text.index("open_session") < text.index("evaluate_simulate") < text.index("get_best") < text.index("export_best")
        assert "1. open_session" in text[:400]


async def test_text_and_structure_say_the_same(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **LLAMA)
        result = await client.call_tool("evaluate_simulate", {})
        assert json.loads(text_of(result)) == result.structured_content


async def test_the_balance_of_experts_is_one_sentence_with_what_a_hot_rank_does_to_memory_and_time(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **MIXTRAL)
        fitting = {"recompute_granularity": "full"}
        priced = await call(client, "evaluate_simulate", config_json=fitting)
        about = [text for text in priced["warnings"] if "expert" in text and ("mean" in text or "balanc" in text)]
        assert len(about) == 1 and about[0].startswith("expert load is priced at 1 x the mean (balance is forced")
        found = re.fullmatch(r".*memory (.*) and (.*) GB.*, throughput (\S+) \(-\d+%\) and (\S+) \(-\d+%\) tokens/s/GPU", about[0])
        assert found is not None, about[0]
        slower, slowest = (float(found[place].replace(",", "")) for place in (3, 4))
        assert priced["tokens_per_s_per_gpu"] > slower > slowest
        checked = await call(client, "evaluate_memory_only", config_json={"tp": 1})
        assert sum("x the mean" in text for text in checked["warnings"]) == 1 and "throughput" not in " ".join(checked["warnings"])
        assert len(json.dumps(priced)) < 6000


async def test_what_only_the_policy_of_the_search_refuses_is_priced_with_a_warning_and_never_the_best(connect: Connect) -> None:
    async with connect() as client:
        await call(client, "open_session", **MIXTRAL)
        inside = await call(client, "evaluate_simulate", config_json={"recompute_granularity": "full"})
        wider = {"recompute_granularity": "full", "vpp": 14}
        checked = await call(client, "evaluate_memory_only", config_json=wider)
        assert checked["legal"] and any("tune and sweep leave this out" in text for text in checked["warnings"])
        outside = await call(client, "evaluate_simulate", config_json=wider)
        assert outside["legal"] and outside["tokens_per_s_per_gpu"] is not None and outside["verdict"] == "fits"
        assert any("tune and sweep leave this out" in text for text in outside["warnings"])
        assert "never becomes the best" in outside["next"] and outside["best_trial_id"] == inside["trial_id"]
        assert (await call(client, "evaluate_simulate", config_json=wider))["repeated"]
        best = await call(client, "get_best")
        assert best["trial_id"] == inside["trial_id"] and best["candidates"] == 1
        explained = await call(client, "explain_trial", trial_id=outside["trial_id"], sensitivity=True)
        assert explained["time_ms"]
        refused_by_the_trainer = await call(client, "evaluate_simulate", config_json={"tp": 3})
        assert not refused_by_the_trainer["legal"] and refused_by_the_trainer["tokens_per_s_per_gpu"] is None
