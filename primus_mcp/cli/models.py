"""`primus-mcp models`: the published models that the catalogue knows, with their parameter counts."""

from __future__ import annotations

import argparse
import json

from primus_mcp.cli.streams import print_rich
from primus_mcp.inputs.published import PublishedModel, published_models
from primus_mcp.projection.parameters import total_parameters


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="one JSON document")


def _row(model: PublishedModel) -> dict[str, object]:
    arch = model.architecture
    return {
        "name": model.name,
        "aliases": list(model.aliases),
        "hf_id": model.hf_id,
        "layers": arch.num_layers,
        "hidden_size": arch.hidden_size,
        "experts": arch.experts.num_experts if arch.experts else None,
        "top_k": arch.experts.top_k if arch.experts else None,
        "attention": "MLA" if arch.latent_attention else "MHA" if arch.num_query_groups == arch.num_attention_heads else "GQA",
        "parameters": total_parameters(arch, include_mtp=model.published_includes_mtp),
        "published_parameters": model.published_parameters,
        "published_exact": model.published_exact,
        "count_difference_reason": model.count_difference_reason,
        "seq_length": model.run.seq_length,
        "gbs": model.run.gbs,
        "mbs": model.run.mbs,
        "defaults_source": model.run.source,
    }


def run(arguments: argparse.Namespace) -> int:
    """Print the list."""
    rows = [_row(model) for model in published_models().values()]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return 0
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("model", "layers", "hidden", "attention", "experts", "parameters", "published", "sequence", "GBS"):
        table.add_column(heading, no_wrap=True, justify="left" if heading in ("model", "attention") else "right")
    for row in rows:
        experts = f"{row['experts']} top {row['top_k']}" if row["experts"] else "-"
        about = "" if row["published_exact"] else "about "
        counts = (f"{row['parameters']:,}", f"{about}{row['published_parameters']:,}", f"{row['seq_length']:,}", f"{row['gbs']:,}")
        table.add_row(str(row["name"]), str(row["layers"]), str(row["hidden_size"]), str(row["attention"]), experts, *counts)
    print_rich(table, columns=160)
    return 0
